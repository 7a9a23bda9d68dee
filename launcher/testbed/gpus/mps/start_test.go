//go:build linux

package mps_test

import (
	"bytes"
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
	b.killDaemon(syscall.SIGKILL)
	if _, err := os.Stat(filepath.Join(b.pipes, "control")); err != nil {
		t.Errorf("a killed daemon leaves no socket: %v", err)
	}
	alone("the folder of a dead daemon")
	b.start() // in spite of what lies there
	b.client(nil).kill()
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

func TestOnlyADaemonStartsAServer(t *testing.T) {
	b := newBench(t, gpus.L40S())
	said, err := b.command(b.programs().MPSServer).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "is started by nvidia-cuda-mps-control only") {
		t.Errorf("%v, %q", err, said)
	}
}
