//go:build linux

package mps_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// within is far more than anything here takes.
const within = 20 * time.Second

// bench is a machine with folders for a daemon.
type bench struct {
	t             *testing.T
	folder        string // of the scenario
	pipes, logs   string
	env           []string // of all programs
	own           []string // of the daemon alone
	control, work string
}

func newBench(t *testing.T, s *gpus.Scenario, env ...string) *bench {
	t.Helper()
	built, err := gpus.Build()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, folder: t.TempDir(), control: built.MPSControl, work: built.Worker}
	if err := s.Write(b.folder); err != nil {
		t.Fatal(err)
	}
	return b.daemon(env...)
}

// daemon is the same machine with folders for another daemon.
func (b *bench) daemon(env ...string) *bench {
	b.t.Helper()
	other := *b
	other.env, other.own = nil, env
	root, err := os.MkdirTemp("", "mps") // short: paths of sockets are
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(root) })
	other.pipes, other.logs = filepath.Join(root, "pipe"), filepath.Join(root, "log")
	for _, folder := range []string{other.pipes, other.logs} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, variable := range os.Environ() { // no variable of who runs the tests
		if !strings.HasPrefix(variable, "CUDA_") {
			other.env = append(other.env, variable)
		}
	}
	other.env = append(other.env, gpus.Variable+"="+b.folder, "CUDA_MPS_PIPE_DIRECTORY="+other.pipes)
	other.env = append(other.env, "CUDA_MPS_LOG_DIRECTORY="+other.logs)
	b.t.Cleanup(other.killAll)
	return &other
}

// killAll ends what a test has left: the daemon and servers that its log names.
func (b *bench) killAll() {
	text, _ := os.ReadFile(filepath.Join(b.logs, "control.log"))
	for _, found := range regexp.MustCompile(`Control +(\d+)\]|new server (\d+)`).FindAllStringSubmatch(string(text), -1) {
		pid, _ := strconv.Atoi(found[1] + found[2])
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if pid > 1 && strings.Contains(string(name), "nvidia-cuda-mps") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (b *bench) command(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	b.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = b.env
	return cmd
}

// start starts the daemon.
func (b *bench) start() *bench {
	b.t.Helper()
	cmd := b.command(b.control, "-d")
	cmd.Env = append(cmd.Env, b.own...)
	if said, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("start: %v: %s", err, said)
	}
	return b
}

// try asks the front end.
func (b *bench) try(lines ...string) (said string, status int) {
	b.t.Helper()
	cmd := b.command(b.control)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return strings.TrimSpace(string(out)), exit.ExitCode()
	} else if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), 0
}

// ask is try where the daemon is to answer.
func (b *bench) ask(lines ...string) string {
	b.t.Helper()
	said, status := b.try(lines...)
	if status != 0 {
		b.t.Fatalf("%v: status %d: %s", lines, status, said)
	}
	return said
}

func (b *bench) says(line, want string) {
	b.t.Helper()
	if got := b.ask(line); got != want {
		b.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// worker is a cudaworker that runs.
type worker struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs bytes.Buffer
	line workerLine
	done chan error
}

type workerLine struct {
	PID     int
	UUID    string
	Index   int
	Visible []string
	MPS     *struct {
		Server             int
		Percentage         float64
		Limit, Free, Total uint64
	}
}

// run starts a worker, which stays unless args say otherwise, and returns when it has its
// context, or has ended.
func (b *bench) run(env []string, args ...string) *worker {
	b.t.Helper()
	w := &worker{t: b.t, cmd: b.command(b.work, append([]string{"-for", "1m", "-bytes", "1GiB"}, args...)...), done: make(chan error, 1)}
	w.cmd.Env = append(w.cmd.Env, env...)
	w.cmd.Stderr = &w.errs
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	w.line.PID = w.cmd.Process.Pid
	_ = json.NewDecoder(out).Decode(&w.line) // one that ends says why on its standard error
	go func() { w.done <- w.cmd.Wait() }()
	return w
}

// client is a worker that must be a client.
func (b *bench) client(env []string, args ...string) *worker {
	b.t.Helper()
	w := b.run(env, args...)
	if w.line.MPS == nil {
		b.t.Fatalf("no client of MPS: %s", w.ends())
	}
	return w
}

// ends waits for the worker and returns what it said.
func (w *worker) ends() string {
	w.t.Helper()
	select {
	case err := <-w.done:
		return fmt.Sprintf("%s (%v)", w.errs.String(), err)
	case <-time.After(within):
		w.t.Fatal("the worker stays")
		return ""
	}
}

func (w *worker) fails(want string) {
	w.t.Helper()
	if said := w.ends(); !strings.Contains(said, want) || !strings.Contains(said, "exit status 1") {
		w.t.Errorf("the worker says %q, want %q", said, want)
	}
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	w.ends()
}

func (b *bench) await(what string, is func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(within)
	for !is() {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %v", what, within)
		}
	}
}

func (b *bench) log(name string) string {
	text, err := os.ReadFile(filepath.Join(b.logs, name))
	if err != nil {
		b.t.Error(err)
	}
	return string(text)
}

func TestAServerStartsAtTheFirstClientAndStays(t *testing.T) {
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+s.GPUs[2].UUID).start()
	b.says("get_server_list", "")
	w := b.client(nil)
	if w.line.Index != 2 || len(w.line.Visible) != 1 {
		t.Errorf("the client sees %v and has GPU %d", w.line.Visible, w.line.Index)
	}
	server := strconv.Itoa(w.line.MPS.Server)
	b.says("get_server_list", server)
	b.says("get_server_status "+server, "ACTIVE")
	b.says("get_client_list "+server, strconv.Itoa(w.line.PID))
	if table := strings.Split(b.ask("ps"), "\n"); len(table) != 2 || !slices.Equal(strings.Fields(table[0]), []string{"PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"}) ||
		!strings.HasPrefix(table[1], fmt.Sprintf("%-10d%-10d%-15s%s  ", w.line.PID, 0, server, s.GPUs[2].UUID)) {
		t.Errorf("ps: %q", table)
	}
	b.says("get_device_client_list", fmt.Sprintf("%s\n%d", s.GPUs[2].UUID, w.line.PID))
	w.kill()
	b.await("the client's leaving", func() bool { return b.ask("get_client_list "+server) == "" })
	b.says("get_server_list", server)
	if got := b.client(nil).line.MPS.Server; strconv.Itoa(got) != server {
		t.Errorf("another server, %d, for the next client", got)
	}
	for _, want := range []string{"Starting control daemon using socket " + b.pipes + "/control", "Accepting connection...",
		"NEW CLIENT " + strconv.Itoa(w.line.PID) + " from user", "Server is not ready, push client to pending list", "Starting new server " + server, "NEW SERVER " + server + ": Ready", "Server already exists"} {
		if log := b.log("control.log"); !strings.Contains(log, want) {
			t.Errorf("control.log without %q:\n%s", want, log)
		}
	}
	if form := regexp.MustCompile(`(?m)^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Server +\d+\] Volta MPS: status of client \{\d+, 0\} is ACTIVE$`); !form.MatchString(b.log("server.log")) {
		t.Errorf("server.log:\n%s", b.log("server.log"))
	}
}

func TestWithoutADaemonAProcessRunsWithoutMPSAndSaysNothing(t *testing.T) {
	b := newBench(t, gpus.L40S())
	alone := func(why string) {
		t.Helper()
		w := b.run(nil, "-for", "1ms")
		if said := w.ends(); w.line.MPS != nil || w.line.UUID == "" || said != " (<nil>)" {
			t.Errorf("%s: %+v, says %q", why, w.line, said)
		}
		if said, status := b.try("get_server_list"); status == 0 || said != "Cannot find MPS control daemon process" {
			t.Errorf("%s: status %d, %q", why, status, said)
		}
	}
	alone("an empty folder")
	b.start()
	pid := b.pid()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.await("the daemon's death", func() bool { return !runs(pid) })
	if _, err := os.Stat(filepath.Join(b.pipes, "control")); err != nil {
		t.Errorf("a killed daemon leaves no socket: %v", err)
	}
	alone("the folder of a dead daemon")
	b.start() // in spite of what lies there
	b.client(nil).kill()
}

// pid is the daemon's.
func (b *bench) pid() int {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.pipes, "nvidia-cuda-mps-control.pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func runs(pid int) bool {
	_, err := gpus.StartTime(pid)
	return err == nil
}

func TestADaemonDoesNotStartWhereItCannot(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	for name, test := range map[string]struct {
		variable, says string
	}{
		"beside another":                   {"", "An instance of this daemon is already running"},
		"in a folder that is missing":      {"CUDA_MPS_PIPE_DIRECTORY=/nowhere", "Cannot access CUDA_MPS_PIPE_DIRECTORY=/nowhere"},
		"in a folder with too long a path": {"CUDA_MPS_PIPE_DIRECTORY=" + deep(t), "Cannot access CUDA_MPS_PIPE_DIRECTORY="},
	} {
		for _, option := range []string{"-d", "-f"} {
			cmd := b.command(b.control, option)
			cmd.Env = append(cmd.Env, test.variable)
			if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), test.says) {
				t.Errorf("%s %s: %v, %q", name, option, err, said)
			}
		}
	}
	// A recorded number that is another process's by now is taken for a daemon's.
	other := b.daemon()
	if err := os.WriteFile(filepath.Join(other.pipes, "nvidia-cuda-mps-control.pid"), fmt.Append(nil, os.Getpid()), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := other.command(other.control, "-d").CombinedOutput(); err == nil || !strings.Contains(string(said), "already running") {
		t.Errorf("%v, %q", err, said)
	}
	if said, status := other.try("quit"); status == 0 || said != "Cannot authenticate or connect to MPS control daemon process" {
		t.Errorf("status %d, %q", status, said)
	}
}

// deep is a folder whose path is too long for a socket.
func deep(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestLogsThatCannotBeWrittenAreNoReasonNotToStart(t *testing.T) {
	b := newBench(t, gpus.L40S())
	b.env = append(b.env, "CUDA_MPS_LOG_DIRECTORY=/nowhere")
	said, err := b.command(b.control, "-d").CombinedOutput()
	if err != nil || string(said) != "Warning: Failed writing log files to directory [/nowhere]. No logs will be available.\n" {
		t.Fatalf("%v, %q", err, said)
	}
	b.client(nil).kill()
	if said, status := b.try("quit"); status != 0 {
		t.Errorf("quit: %d, %s", status, said)
	}
}

func TestTheForegroundDaemonIsTheProcessThatWasStarted(t *testing.T) {
	b := newBench(t, gpus.L40S())
	cmd := b.command(b.control, "-f")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.await("the daemon", func() bool { _, status := b.try("get_server_list"); return status == 0 })
	if b.pid() != cmd.Process.Pid {
		t.Errorf("the daemon is %d, not %d", b.pid(), cmd.Process.Pid)
	}
	b.says("quit", "")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "Starting control daemon using socket") {
		t.Errorf("%v: %s", err, out.String())
	}
	if left, err := os.ReadDir(b.pipes); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDevicesAreNumberedByTheDaemon(t *testing.T) {
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES=3,1").start()
	for _, test := range []struct {
		list string
		want int // -1: none
	}{
		{"0", 3}, {"1", 1}, {s.GPUs[1].UUID, 1}, {s.GPUs[3].UUID[:12], 3}, {"3", -1}, {s.GPUs[0].UUID, -1},
	} {
		w := b.run([]string{"CUDA_VISIBLE_DEVICES=" + test.list}, "-for", "1ms")
		if test.want < 0 {
			w.fails("No CUDA GPUs are available")
		} else if said := w.ends(); w.line.Index != test.want || w.line.MPS == nil {
			t.Errorf("%s: GPU %d, want %d (%s)", test.list, w.line.Index, test.want, said)
		}
	}
	// The daemon's order counts, not the client's.
	mixed := newBench(t, gpus.Mixed(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0").start()
	w := mixed.client([]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, "-bytes", "1MiB")
	if w.line.Index != 0 {
		t.Errorf("GPU %d", w.line.Index)
	}
}

func TestCommandsAreAnsweredInTheToolsWords(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40").start()
	server := b.client(nil).line.MPS.Server
	for _, test := range [][2]string{
		{"get_default_active_thread_percentage", "40.0"},
		{"set_default_active_thread_percentage 25", "25.0"},
		{"get_default_active_thread_percentage", "25.0"},
		{"get_active_thread_percentage SERVER", "40.0"}, // the next server's, not this one's
		{"set_active_thread_percentage SERVER 12.5", "12.5"},
		{"get_active_thread_percentage SERVER", "12.5"},
		{"set_active_thread_percentage SERVER 0", "Invalid percentage, expected between (0.0, 100.0]"},
		{"set_default_active_thread_percentage 101", "Invalid percentage, expected between (0.0, 100.0]"},
		{"get_default_device_pinned_mem_limit 0", "No default pinned memory limit set for the device!"},
		{"set_default_device_pinned_mem_limit 0 18G", ""},
		{"get_default_device_pinned_mem_limit 0", "18G"},
		{"set_default_device_pinned_mem_limit 3 18G", "Invalid device ordinal!"}, // the host's number
		{"set_device_pinned_mem_limit SERVER 0 512M", ""},
		{"get_device_pinned_mem_limit SERVER 0", "512M"},
		{"set_default_client_priority 2", "Invalid priority value - must be 0 or 1!"},
		{"set_default_client_priority 1", ""},
		{"get_default_client_priority", "1"},
		{"get_server_status 1", "Server 1 not found"},
		{"get_client_list 1", "Server 1 not found"},
		{"terminate_client SERVER 1", "Invalid process 1!"},
		{"start_server -uid 4711", ""}, // root may; there is one already
		{"help", `Unknown command "help"`},
	} {
		if os.Getuid() == 0 || !strings.HasPrefix(test[0], "start_server") {
			b.says(strings.ReplaceAll(test[0], "SERVER", strconv.Itoa(server)), test[1])
		}
	}
	if got := b.ask("get_default_client_priority", "", "get_default_active_thread_percentage"); got != "1\n25.0" {
		t.Errorf("two commands: %q", got)
	}
	// A limit for a UUID is taken without a word and has no effect.
	uuid := gpus.L40S().GPUs[3].UUID
	other := b.daemon("CUDA_VISIBLE_DEVICES=" + uuid).start()
	other.says("set_default_device_pinned_mem_limit "+uuid+" 1G", "")
	other.says("get_default_device_pinned_mem_limit 0", "No default pinned memory limit set for the device!")
	if w := other.client(nil); w.line.MPS.Limit != 0 {
		t.Errorf("limit %d", w.line.MPS.Limit)
	}
	old := newBench(t, gpus.Pascal()).start()
	old.says("set_default_device_pinned_mem_limit 0 1G", `Unknown command "set_default_device_pinned_mem_limit"`)
}

func TestClientsGetTheSharesThatWereSet(t *testing.T) {
	const gib = 1 << 30
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+s.GPUs[1].UUID).start()
	b.ask("set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 4G")
	for _, test := range []struct {
		env        []string
		percentage float64
		limit      uint64
	}{
		{nil, 50, 4 * gib},
		{[]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G"}, 25, 2 * gib},
		{[]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=75", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G"}, 50, 4 * gib}, // only downwards
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + s.GPUs[1].UUID + "=1536M"}, 50, 3 * gib / 2},
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=4096"}, 50, 4 * gib},    // not understood
		{[]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512MB"}, 50, 4 * gib}, // nor this
		{[]string{"CUDA_MPS_DEVICE_MEM_LIMIT=0=1G"}, 50, 4 * gib},           // no such variable
	} {
		w := b.client(test.env, "-for", "1ms")
		if got := w.line.MPS; got.Percentage != test.percentage || got.Limit != test.limit || got.Free != test.limit-24<<20 || got.Total != *s.GPUs[1].Memory.Total {
			t.Errorf("%v: %+v", test.env, *got)
		}
		w.ends()
	}
	b.run(nil, "-bytes", "4GiB").fails("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 44.99 GiB of which 3.98 GiB is free.")
}

func TestProcessListsShowServerAndClients(t *testing.T) {
	s := gpus.L40S()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES=0").start()
	w := b.client(nil)
	held, err := gpus.Held(b.folder)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[int]string{}
	for _, p := range s.GPUs[0].Holders(held) {
		kinds[p.PID] = p.Kind
	}
	if len(kinds) != 2 || kinds[w.line.PID] != "mps" || kinds[w.line.MPS.Server] != "compute" {
		t.Errorf("%v, of client %d and server %d", kinds, w.line.PID, w.line.MPS.Server)
	}
	// Before Volta the server stands for its clients.
	old := newBench(t, gpus.Pascal(), "CUDA_VISIBLE_DEVICES=0").start()
	w = old.client(nil)
	if held, err = gpus.Held(old.folder); err != nil || len(held) != 1 || held[0].PID != w.line.MPS.Server || held[0].Bytes != 1<<30+30<<20 {
		t.Errorf("%v, %+v", err, held)
	}
}

func TestExclusiveDevicesAreSharedThroughOneServer(t *testing.T) {
	s := gpus.Exclusive()
	b := newBench(t, s, "CUDA_VISIBLE_DEVICES="+s.GPUs[0].UUID).start()
	b.client(nil)
	b.client(nil)
	outside := b.daemon()
	outside.run([]string{"CUDA_VISIBLE_DEVICES=0"}).fails("CUDA-capable device(s) is/are busy or unavailable")
	// Nor has another daemon's server the device.
	outside.own = []string{"CUDA_VISIBLE_DEVICES=0"}
	outside.start().run(nil).fails("MPS client failed to connect to the MPS control daemon or the MPS server")
	outside.says("get_server_list", "")
	if log := outside.log("server.log"); !strings.Contains(log, "busy or unavailable") || !strings.Contains(log, "MPS server failed to start") {
		t.Errorf("server.log:\n%s", log)
	}
}

func TestRoomForContextsIsThatOfTheArchitectureAndTheDriver(t *testing.T) {
	newer := gpus.L40S()
	newer.Driver, newer.CUDA = "590.44.01", "13.1"
	for name, test := range map[string]struct {
		s    *gpus.Scenario
		room int
	}{
		"Volta and later": {gpus.L40S(), 48},
		"before Volta":    {gpus.Pascal(), 16},
		"since CUDA 13.1": {newer, 60},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.s, "CUDA_VISIBLE_DEVICES=0").start()
			first := b.client(nil, "-contexts", strconv.Itoa(test.room-1))
			second := b.client(nil)
			b.run(nil).fails("the hardware resources required to create MPS client have been exhausted")
			second.kill()
			b.await("the second's leaving", func() bool {
				return b.ask("get_client_list "+strconv.Itoa(first.line.MPS.Server)) == strconv.Itoa(first.line.PID)
			})
			b.run([]string{"CUDA_DEVICE_MAX_CONNECTIONS=8"}).fails("device connections have been exhausted")
		})
	}
}

func TestManyClientsNeedManyOpenFiles(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0")
	cmd := b.command("sh", "-c", "ulimit -n 192 && exec "+b.control+" -d")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for range 3 {
		b.client(nil)
	}
	b.run(nil).fails("MPS client failed to connect")
	if log := b.log("server.log"); !strings.Contains(log, "MPS Server failed to create/open SHM segment") {
		t.Errorf("server.log:\n%s", log)
	}
}

func TestAFaultTakesAllClientsOfTheGPUAlong(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0,1").start()
	here, there := []string{"LOCAL_RANK=0"}, []string{"LOCAL_RANK=1"}
	good, elsewhere, stuck := b.client(here), b.client(there), b.client(here, "-stuck")
	server := strconv.Itoa(good.line.MPS.Server)
	b.run(here, "-fault", "-for", "1ms").fails("an illegal memory access was encountered")
	good.fails("an illegal memory access was encountered")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_status "+server) == "FAULT" })
	// Nobody comes in, on the GPU that is well neither, while one has not left.
	b.run(there).fails("MPS server is not ready to accept new MPS client requests")
	if !runs(elsewhere.line.PID) {
		t.Error("the fault has reached another GPU")
	}
	stuck.kill()
	b.await("the end of the fault", func() bool { return b.ask("get_server_status "+server) == "ACTIVE" })
	b.client(here)
	for _, want := range []string{"Server is handling a fatal GPU error.", "The following clients have a sticky error set:", "Destroy server context on device 0", "is INACTIVE"} {
		if log := b.log("server.log"); !strings.Contains(log, want) {
			t.Errorf("server.log without %q:\n%s", want, log)
		}
	}
	if events, _ := filepath.Glob(filepath.Join(b.folder, gpus.StateFolder, "event-*")); len(events) != 1 {
		t.Errorf("Xid errors: %v", events)
	}
}

func TestAFaultSpreadsThroughClientsOfSeveralGPUs(t *testing.T) {
	b := newBench(t, gpus.L40S(), "CUDA_VISIBLE_DEVICES=0,1,2").start()
	both := b.client([]string{"CUDA_VISIBLE_DEVICES=0,1"}, "-everywhere")
	second, third := b.client([]string{"LOCAL_RANK=1"}), b.client([]string{"LOCAL_RANK=2"})
	b.run([]string{"LOCAL_RANK=0"}, "-fault", "-for", "1ms").fails("an illegal memory access was encountered")
	both.fails("an illegal memory access was encountered")
	second.fails("an illegal memory access was encountered")
	if !runs(third.line.PID) {
		t.Error("a client that shares nothing with the others is gone")
	}
}

func TestOneServerForAllUsers(t *testing.T) {
	b := newBench(t, gpus.L40S())
	said, err := b.command(b.control, "-d", "-multiuser-server").CombinedOutput()
	if os.Getuid() != 0 {
		if err == nil || !strings.Contains(string(said), "Insufficient privileges for UID") {
			t.Errorf("%v, %q", err, said)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, folder := range []string{filepath.Dir(b.pipes), b.pipes} {
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	other := *b
	other.folderFor(1042)
	first := b.client(nil)
	if second := other.client(nil, "-uid", "1042"); second.line.MPS.Server != first.line.MPS.Server {
		t.Error("two servers")
	}
}

func TestBeforeVoltaAFaultEndsTheServer(t *testing.T) {
	b := newBench(t, gpus.Pascal(), "CUDA_VISIBLE_DEVICES=0").start()
	good := b.client(nil)
	b.run(nil, "-fault", "-for", "1ms").fails("CUDA error")
	good.fails("the remote procedural call between the MPS server and the MPS client failed")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_list") == "" })
}

func TestTheDeathOfAServerIsTheClients(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	server := w.line.MPS.Server
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.fails("the remote procedural call between the MPS server and the MPS client failed")
	b.await("the daemon's notice", func() bool { return b.ask("get_server_list") == "" })
	if log := b.log("control.log"); !strings.Contains(log, fmt.Sprintf("Server %d exited with status 9", server)) {
		t.Errorf("control.log:\n%s", log)
	}
	if next := b.client(nil); next.line.MPS.Server == server {
		t.Error("a dead server has a client")
	}
}

func TestADeadDaemonLeavesItsServer(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	if err := syscall.Kill(b.pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.await("the daemon's death", func() bool { return !runs(b.pid()) })
	if !runs(w.line.MPS.Server) || !runs(w.line.PID) {
		t.Error("server or client are gone")
	}
	if late := b.run(nil); late.line.MPS != nil {
		t.Error("a client of a dead daemon")
	}
}

func TestOneClientIsEndedByACommand(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w, other := b.client(nil), b.client(nil)
	b.says(fmt.Sprintf("terminate_client %d %d", w.line.MPS.Server, w.line.PID), "")
	w.fails("the MPS client has been terminated by the server")
	b.says("get_client_list "+strconv.Itoa(w.line.MPS.Server), strconv.Itoa(other.line.PID))
}

func TestServersShutDownOnTheirOwnOrByForce(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil)
	server := strconv.Itoa(w.line.MPS.Server)
	b.says("shutdown_server "+server, "Server "+server+" has 1 active worker threads. Server will not shutdown.")
	if !runs(w.line.MPS.Server) {
		t.Error("the server is gone")
	}
	w.kill()
	b.await("the server's end", func() bool { return b.ask("get_server_list") == "" })
	w = b.client(nil)
	b.says(fmt.Sprintf("shutdown_server %d -f", w.line.MPS.Server), "")
	w.fails("the remote procedural call")
}

func TestQuitWaitsForClients(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	stop := filepath.Join(t.TempDir(), "stop")
	w := b.client(nil, "-until", stop, "-for", "0")
	daemon := b.pid()
	quit := b.command(b.control)
	quit.Stdin = strings.NewReader("quit\n")
	if err := quit.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- quit.Wait() }()
	b.await("the deaf ear to new clients", func() bool {
		late := b.run(nil, "-for", "1ms")
		late.ends()
		return late.line.PID > 0 && late.line.MPS == nil
	})
	select {
	case err := <-done:
		t.Fatalf("quit has not waited: %v", err)
	default:
	}
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.ends()
	if err := <-done; err != nil {
		t.Errorf("quit: %v", err)
	}
	b.await("the daemon's end", func() bool { return !runs(daemon) })
	if runs(w.line.MPS.Server) {
		t.Error("the server is there")
	}
}

func TestQuitWithATimeForcesServersAndSaysSo(t *testing.T) {
	b := newBench(t, gpus.L40S()).start()
	w := b.client(nil, "-deaf")
	_ = syscall.Kill(w.line.PID, syscall.SIGTERM)
	said, status := b.try("quit -t 0")
	if status == 0 || said != "" {
		t.Errorf("status %d, %q", status, said)
	}
	w.fails("the remote procedural call")
	if log := b.log("control.log"); !strings.Contains(log, "quit command issued with timeout of 0") {
		t.Errorf("control.log:\n%s", log)
	}
}

func TestUsersTakeTurns(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := newBench(t, gpus.L40S())
	for _, folder := range []string{filepath.Dir(b.pipes), b.pipes, b.logs} { // others may come in
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	b.folderFor(1042)
	b.start()
	first := b.client(nil)
	second := b.command(b.work, "-uid", "1042", "-for", "1ms")
	var out bytes.Buffer
	second.Stdout, second.Stderr = &out, &out
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	b.await("the second user's client", func() bool { return strings.Contains(b.log("control.log"), "from user 1042: Server is not ready") })
	if !runs(first.line.MPS.Server) || out.Len() > 0 {
		t.Errorf("the second user did not wait: %s", out.String())
	}
	first.kill()
	if err := second.Wait(); err != nil || !strings.Contains(out.String(), `"server":`) {
		t.Errorf("%v: %s", err, out.String())
	}
	if runs(first.line.MPS.Server) {
		t.Error("both users have a server")
	}
	stranger := b.command(b.control)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1042, Gid: 1042}}
	stranger.Stdin = strings.NewReader("quit\n")
	if said, err := stranger.Output(); err == nil || string(said) != "Cannot authenticate or connect to MPS control daemon process\n" {
		t.Errorf("another user's daemon: %v, %q", err, said)
	}
}

// folderFor lets another user's processes reach the machine and the programs.
func (b *bench) folderFor(uid int) {
	b.t.Helper()
	root, err := os.MkdirTemp("", "mps")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		b.t.Fatal(err)
	}
	s, err := gpus.Read(b.folder)
	if err != nil {
		b.t.Fatal(err)
	}
	b.folder = filepath.Join(root, "machine")
	if err := s.Write(b.folder); err != nil {
		b.t.Fatal(err)
	}
	for _, path := range []*string{&b.control, &b.work} {
		*path = copied(b.t, *path, root)
	}
	copied(b.t, filepath.Join(filepath.Dir(b.programs().MPSServer), "nvidia-cuda-mps-server"), root)
	b.env = append(b.env, gpus.Variable+"="+b.folder)
}

func (b *bench) programs() gpus.Programs {
	built, err := gpus.Build()
	if err != nil {
		b.t.Fatal(err)
	}
	return built
}

func copied(t *testing.T, path, into string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(into, filepath.Base(path))
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatGoesWrongOnPurpose(t *testing.T) {
	with := func(faults ...gpus.Fault) *gpus.Scenario {
		s := gpus.L40S()
		s.Faults = faults
		return s
	}
	b := newBench(t, with(gpus.Fault{Function: gpus.MPSControl + " -d", Do: "error", Says: "MPS is not supported here", Error: 3}))
	said, err := b.command(b.control, "-d").CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 3 || string(said) != "MPS is not supported here\n" {
		t.Errorf("a refused start: %v, %q", err, said)
	}
	turn := func(faults ...gpus.Fault) {
		t.Helper()
		if err := with(faults...).Write(b.folder); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	b.start()
	turn(gpus.Fault{Function: gpus.MPSControl + " get_server_list", Do: "error", Says: "Insufficient privileges for UID 0. Only the root user may ask"})
	b.says("get_server_list", "Insufficient privileges for UID 0. Only the root user may ask")
	turn(gpus.Fault{Function: gpus.MPSServer, Do: "error", Error: 4})
	b.run(nil).fails("MPS client failed to connect to the MPS control daemon or the MPS server")
	turn(gpus.Fault{Function: gpus.MPSServer, Do: "crash"})
	b.run(nil).fails("MPS client failed to connect to the MPS control daemon or the MPS server")
	if log := b.log("control.log"); !strings.Contains(log, "exited with status 4") || !strings.Contains(log, "exited with status 11") {
		t.Errorf("control.log:\n%s", log)
	}
	turn(gpus.Fault{Function: gpus.MPSServer, Do: "hang", Seconds: 30})
	b.says("start_server -uid "+strconv.Itoa(os.Getuid()), "")
	server := b.ask("get_server_list")
	b.says("get_server_status "+server, "INITIALIZING")
	b.says("get_client_list "+server, "Server "+server+" is <busy>")
	b.says("shutdown_server "+server+" -f", "")
	turn(gpus.Fault{Function: gpus.MPSControl + " *", Do: "hang", Seconds: 1})
	began := time.Now()
	b.says("get_server_list", "")
	if time.Since(began) < time.Second {
		t.Error("the daemon has not hung")
	}
	turn(gpus.Fault{Function: gpus.MPSControl + " *", Do: "crash"})
	if said, status := b.try("get_server_list"); status == 0 || !strings.Contains(said, "Cannot") {
		t.Errorf("a daemon that crashes: %d, %q", status, said)
	}
	turn()
	if said, status := b.try("get_server_list"); status == 0 || said != "Cannot find MPS control daemon process" {
		t.Errorf("a daemon that has crashed: %d, %q", status, said)
	}
}
