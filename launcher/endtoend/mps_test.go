//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

var mpsRoom room

// theMPSHosts are machines with MPS: four cards of one, older ones, and such with MIG. Somebody
// who is not root has an account there.
func theMPSHosts(t *testing.T) *testbed.Bed {
	t.Helper()
	names := []string{"shared", "old", "parted"}
	return mpsRoom.borrow(t, testbed.Options{Hosts: len(names), Names: names, User: ordinary, Each: func(i int, h *testbed.HostOptions) {
		h.GPUs = onThisMachine(t, []func() *gpus.Scenario{gpus.L40S, gpus.Pascal, idleMIG}[i]()).OwnCards(100 + i)
	}})
}

// sharingJob writes a job whose workers share GPUs of a host by MPS. worker are the flags of
// cudaworker, or a whole script.
func (u *user) sharingJob(name, worker, ranks, block string, more ...string) string {
	u.t.Helper()
	command := "exec cudaworker " + worker
	if strings.Contains(worker, "cudaworker") {
		command = worker
	}
	stop := "stop { grace = \"2s\" }"
	if slices.ContainsFunc(more, func(text string) bool { return strings.HasPrefix(text, "stop ") }) {
		stop = ""
	}
	return u.file(name+".hcl", fmt.Sprintf("job %q {\n  command = [\"sh\", \"-c\", %s]\n  %s\n  hosts \"ssh\" {\n    names = [\"shared\"]\n  }\n  ranks {\n%s\n    backend = \"none\"\n  }\n  mps {\n%s\n  }\n  %s\n}\n",
		name, hclString(command), strings.Join(more, "\n  "), ranks, block, stop))
}

// sharer is where a worker says that it is, and what it shares.
type sharer struct {
	Rank, UUID string
	PID        int
	Visible    []string
	MPS        *struct {
		Server     int
		Percentage float64
		Limit      uint64
		Free       uint64
	}
}

func sharersOf(t testing.TB, r result) map[string]sharer {
	t.Helper()
	found := map[string]sharer{}
	for line := range strings.Lines(r.stdout) {
		_, text, _ := strings.Cut(line, "| ")
		var s sharer
		if json.Unmarshal([]byte(text), &s) == nil && s.Rank != "" {
			found[s.Rank] = s
		}
	}
	return found
}

// mpsProcesses are the processes of MPS on a host.
func mpsProcesses(t testing.TB, h *testbed.Host) (control, server []testbed.Process) {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if len(p.Args) == 0 {
			continue
		}
		switch filepath.Base(p.Args[0]) {
		case gpus.MPSControl:
			control = append(control, p)
		case gpus.MPSServer:
			server = append(server, p)
		}
	}
	return control, server
}

// noMPSLeft sees that no process and no folder of MPS is left on a host.
func noMPSLeft(t testing.TB, h *testbed.Host) {
	t.Helper()
	control, server := mpsProcesses(t, h)
	if len(control)+len(server) > 0 {
		t.Errorf("left on %s: %v %v", h.Name, control, server)
	}
	if left := onHost(h, "/tmp/muster-run-*"); len(left) > 0 {
		t.Errorf("left on %s: %v", h.Name, left)
	}
}

func TestRanksShareGPUsAsClientsWithTheirLimits(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	path := u.sharingJob("sharing", "-bytes 1GiB -for 3s", "    devices = [3, 1]", `    ranks_per_gpu            = 2
    active_thread_percentage = [50, 25]
    pinned_memory_limit      = ["4GiB", "1536MiB"]`)
	r := u.run("run", path).exits(0)
	r.says("every rank was seen on its GPU")
	found := sharersOf(t, r)
	if len(found) != 4 {
		t.Fatalf("%d workers have said where they are: %s", len(found), r.stdout)
	}
	cards := h.GPUs().GPUs
	servers := map[string]int{}
	for rank, s := range found {
		n := int(rank[0] - '0')
		want := cards[[]int{3, 3, 1, 1}[n]].UUID
		if s.UUID != want || s.MPS == nil {
			t.Fatalf("rank %s: %+v, want %s", rank, s, want)
		}
		if s.MPS.Percentage != []float64{50, 25}[n%2] || s.MPS.Limit != []uint64{4 << 30, 1536 << 20}[n%2] {
			t.Errorf("rank %s: %+v", rank, *s.MPS)
		}
		if other := servers[want]; other != 0 && other != s.MPS.Server {
			t.Errorf("GPU %s has two servers", want)
		}
		servers[want] = s.MPS.Server
	}
	if len(servers) != 2 || servers[cards[3].UUID] == servers[cards[1].UUID] {
		t.Errorf("servers %v", servers)
	}
	noMPSLeft(t, h)
	u.run("report", "-").prints("MPS", "GPU 3", "rank")
	var rep struct {
		MPS []struct {
			UUID  string
			Ranks []struct {
				Rank   int
				Client int     `json:"client_pid"`
				Share  float64 `json:"active_thread_percentage"`
				Limit  uint64  `json:"pinned_memory_limit"`
				Peak   uint64  `json:"memory_peak"`
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.MPS) != 2 || len(rep.MPS[0].Ranks) != 2 || rep.MPS[0].Ranks[1].Client != found["1"].PID || rep.MPS[0].Ranks[1].Share != 25 || rep.MPS[1].Ranks[0].Limit != 4<<30 || rep.MPS[1].Ranks[0].Peak == 0 {
		t.Errorf("%+v", rep.MPS)
	}
}

func TestMPSEndsWithTheRunHoweverThatEnds(t *testing.T) {
	bed := theMPSHosts(t)
	for _, c := range []struct {
		name string
		end  func(t *testing.T, u *user, l *launch, h *testbed.Host)
	}{
		{"by Ctrl-C", func(_ *testing.T, _ *user, l *launch, _ *testbed.Host) { l.signal(syscall.SIGINT) }},
		{"its agent is killed", func(t *testing.T, _ *user, _ *launch, h *testbed.Host) {
			signalTo(t, h, inRole(t, h, agent), syscall.SIGKILL)
		}},
		{"its keeper is killed", func(t *testing.T, _ *user, _ *launch, h *testbed.Host) {
			signalTo(t, h, inRole(t, h, keeper), syscall.SIGKILL)
		}},
		{"its coordinator is killed", func(t *testing.T, _ *user, _ *launch, h *testbed.Host) {
			signalTo(t, h, inRole(t, h, coordinator), syscall.SIGKILL)
		}},
		{"a worker fails", func(_ *testing.T, u *user, _ *launch, _ *testbed.Host) { u.file("fail", "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			h := bed.Host("shared")
			// The last worker ignores the stop signal, and so would a hanging one.
			path := u.sharingJob("ends", fmt.Sprintf(`[ $RANK = 0 ] || exec cudaworker -deaf -for 60s; cudaworker -until %s/fail; exit 3`, u.dir), "    devices = [0]", "    ranks_per_gpu = 2", shortLease)
			l := u.start("run", path)
			l.waitToSay("every rank was seen on its GPU")
			c.end(t, u, l, h)
			l.wait()
			within(t, patience, func() string { a, b := mpsProcesses(t, h); return fmt.Sprint("still there: ", a, b) }, func() bool {
				control, server := mpsProcesses(t, h)
				return len(control)+len(server) == 0
			})
			nothingLeft(t, bed)
			noMPSLeft(t, h)
		})
	}
}

// sharingStarted starts a run of workers that stay, and waits until all are clients.
func (u *user) sharingStarted(name, worker, ranks, block string, more ...string) *launch {
	u.t.Helper()
	l := u.start("run", u.sharingJob(name, worker, ranks, block, more...))
	l.waitToSay("every rank was seen on its GPU")
	return l
}

func TestADaemonOrServerThatDiesIsTheFirstCause(t *testing.T) {
	bed := theMPSHosts(t)
	h := bed.Host("shared")
	for _, c := range []struct {
		name, says string
		pick       func(control, server []testbed.Process) []testbed.Process
	}{
		{"the daemon", "the MPS daemon of GPU 2", func(control, _ []testbed.Process) []testbed.Process { return control }},
		{"the server", "the MPS server of GPU 2", func(_, server []testbed.Process) []testbed.Process { return server }},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			l := u.sharingStarted("dies", "-for 60s -deaf", "    devices = [2]", "    ranks_per_gpu = 3")
			control, server := mpsProcesses(t, h)
			signalTo(t, h, c.pick(control, server), syscall.SIGKILL)
			l.waitFor(atOnce).says(c.says, "has ended", "ranks 0, 1, 2 shared it")
			r := u.lastReport()
			r.isOf(t, "mps.lost", "shared")
			r.evidenceHas(t, "control.log:", "NEW SERVER")
			noMPSLeft(t, h)
		})
	}
}

func TestAnotherAttemptHasADaemonThoughTheFirstHasDied(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	l := u.start("run", u.sharingJob("again", "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec cudaworker -for 60s; else exec cudaworker -for 100ms; fi", "    devices = [0]", "    ranks_per_gpu = 2",
		"restart {\n attempts = 1\n backoff = \"0s\"\n}"))
	l.waitToSay("every rank was seen on its GPU")
	control, _ := mpsProcesses(t, h)
	signalTo(t, h, control, syscall.SIGKILL)
	r := l.wait().exits(0)
	for rank, s := range sharersOf(t, r) {
		if s.MPS == nil {
			t.Errorf("rank %s of the second attempt runs without MPS", rank)
		}
	}
	noMPSLeft(t, h)
}

func TestAFaultOfOneClientIsExplainedAndAllAreEndedAtOnce(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	// Rank 1 makes the fault; the others would hold on for a minute, whatever they hear.
	script := fmt.Sprintf("if [ $RANK = 1 ]; then exec cudaworker -until %s/now -fault; fi; exec cudaworker -stuck -deaf -for 60s", u.dir)
	l := u.sharingStarted("fault", script, "    devices = [1]", "    ranks_per_gpu = 3", "stop { grace = \"40s\" }")
	u.file("now", "")
	l.waitFor(atOnce).says("an illegal memory access", "ranks 0, 2 shared the MPS server of GPU 1")
	r := u.lastReport()
	r.isOf(t, "gpu.app_fault", "shared")
	r.evidenceHas(t, "fatal GPU error")
	noMPSLeft(t, h)
}

func TestALimitThatIsUsedUpIsNotTheGPUs(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	l := u.start("run", u.sharingJob("limit", fmt.Sprintf("if [ $RANK = 1 ]; then exec cudaworker -bytes 6GiB -until %s/x; fi; exec cudaworker -for 60s", u.dir), "    devices = [1]", "    ranks_per_gpu = 2\n    pinned_memory_limit = \"4GiB\""))
	l.wait().exits(1)
	u.lastReport().isOf(t, "oom.mps_limit", "shared")
}

func TestARankThatIsNoClientIsFound(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	script := fmt.Sprintf("[ $RANK = 0 ] || export CUDA_MPS_PIPE_DIRECTORY=/tmp/nowhere; exec cudaworker -until %s/end", u.dir)
	l := u.start("run", u.sharingJob("stranger", script, "    devices = [1]", "    ranks_per_gpu = 2"))
	l.waitToSay("rank 1 on shared is on GPU 1 and no client of its MPS daemon")
	u.file("end", "")
	l.wait().exits(0).saysNothingOf("rank 0 on shared is on GPU 1 and no client")
}

func TestADaemonWhoseFolderIsRemovedIsSaidAndEndsAllTheSame(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	l := u.sharingStarted("cleaned", fmt.Sprintf("-until %s/end", u.dir), "    devices = [1]", "    ranks_per_gpu = 2")
	for _, folder := range onHost(h, "/tmp/muster-run-*/m/*") {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	l.waitToSay("its MPS daemon does not answer")
	u.file("end", "")
	l.wait().exits(0)
	noMPSLeft(t, h)
}

func TestTwoRunsShareAHostWithoutMeetingEachOther(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	first := u.sharingStarted("first", "-for 60s", "    devices = [0]", "    ranks_per_gpu = 2")
	second := u.sharingStarted("second", fmt.Sprintf("-until %s/end", u.dir), "    devices = [1]", "    ranks_per_gpu = 2")
	u.run("run", u.sharingJob("third", "-for 1s", "    devices = [0]\n    per_host = \"gpu\"", "    ranks_per_gpu = 2")).exits(75).says("covers GPU 0 already")
	_, server := mpsProcesses(t, h)
	for _, p := range server {
		out, _, err := h.Run(t.Context(), "grep", "Max open files", fmt.Sprintf("/proc/%d/limits", p.PID))
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 5 {
			t.Fatalf("%v: %s", err, out)
		}
		if soft, _ := strconv.Atoi(fields[3]); soft < 16384 && fields[3] != fields[4] {
			t.Errorf("the server may open %s files, of %s", fields[3], fields[4])
		}
	}
	u.run("mps", "ps", "-H", "shared").prints("daemon", "serves", h.GPUs().GPUs[0].UUID)
	u.run("mps", "stop", "-H", "shared").exits(0)
	first.signal(syscall.SIGINT)
	first.wait().exits(130)
	if control, server := mpsProcesses(t, h); len(control) != 1 || len(server) != 1 {
		t.Errorf("beside the run that goes on there are %v %v", control, server)
	}
	u.run("status", "-").prints("MPS", "GPU 1")
	u.file("end", "")
	second.wait().exits(0)
	noMPSLeft(t, h)
}

func TestADaemonThatWasThereIsLeftAloneOrUsed(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	if _, _, err := h.Run(t.Context(), "mkdir", "-p", "/run/mps"); err != nil {
		t.Fatal(err)
	}
	env := func(argv ...string) []string {
		return append([]string{"env", "CUDA_MPS_PIPE_DIRECTORY=/run/mps", "CUDA_MPS_LOG_DIRECTORY=/run/mps"}, argv...)
	}
	if _, _, err := h.Run(t.Context(), env("CUDA_VISIBLE_DEVICES=2,1", gpus.MPSControl, "-d")...); err != nil {
		t.Fatal(err)
	}
	quit := func() {
		_, _, _ = h.Run(t.Context(), "sh", "-c", "echo quit -t 1 | CUDA_MPS_PIPE_DIRECTORY=/run/mps "+gpus.MPSControl)
	}
	defer quit()
	u.run("run", u.sharingJob("own", "-for 1s", "    devices = [1]", "    ranks_per_gpu = 2")).exits(75).says("covers GPU 1 already", "daemon = \"existing\"")
	u.run("run", u.sharingJob("beside", "-for 1s", "    devices = [3]", "    ranks_per_gpu = 2")).exits(0)
	r := u.run("run", u.sharingJob("used", "-bytes 1GiB -for 2s", "    devices = [1]", "    ranks_per_gpu = 2\n    daemon = \"existing\"\n    pipe_directory = \"/run/mps\"\n    pinned_memory_limit = \"2GiB\"")).exits(0)
	for rank, s := range sharersOf(t, r) {
		if s.MPS == nil || s.MPS.Limit != 2<<30 || s.UUID != h.GPUs().GPUs[1].UUID {
			t.Errorf("rank %s: %+v", rank, s)
		}
	}
	if control, _ := mpsProcesses(t, h); len(control) != 1 {
		t.Errorf("the daemon that was there is not the one that is: %v", control)
	}
	quit()
	u.run("run", u.sharingJob("gone", "-for 1s", "    devices = [1]", "    ranks_per_gpu = 2\n    daemon = \"existing\"\n    pipe_directory = \"/run/mps\"")).exits(75).says("no MPS daemon runs there")
}

func TestWhatMPSRefusesIsShown(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	was := h.GPUs()
	t.Cleanup(func() {
		if err := h.SetGPUs(was); err != nil {
			t.Error(err)
		}
	})
	broken := was.Clone()
	broken.Faults = []gpus.Fault{{Function: gpus.MPSControl + " -f", Do: "error", Error: 1, Says: "Failed to start : cannot allocate something"}}
	if err := h.SetGPUs(broken); err != nil {
		t.Fatal(err)
	}
	u.run("run", u.sharingJob("refused", "-for 1s", "    devices = [1]", "    ranks_per_gpu = 2")).exits(75).says("MPS for GPU 1", "exit status 1", "cannot allocate something")
	noMPSLeft(t, h)
	hangs := was.Clone()
	hangs.Faults = []gpus.Fault{{Function: gpus.MPSControl + " quit", Do: "hang", Seconds: 600}}
	if err := h.SetGPUs(hangs); err != nil {
		t.Fatal(err)
	}
	u.run("run", u.sharingJob("hangs", "-for 500ms", "    devices = [1]", "    ranks_per_gpu = 2")).exits(0)
	noMPSLeft(t, h)
}

func TestAMIGDeviceHasADaemonOfItsOwn(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("parted")
	var uuid string
	for _, g := range h.GPUs().GPUs {
		if len(g.MIG.Instances) > 0 {
			uuid = g.MIG.Instances[0].UUID
			break
		}
	}
	path := u.sharingJob("parted", "-bytes 1GiB -for 500ms", "    devices = ["+hclString(uuid)+"]", "    ranks_per_gpu = 2\n    pinned_memory_limit = \"2GiB\"")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := u.run("run", u.file("parted.hcl", strings.Replace(string(text), `"shared"`, `"parted"`, 1))).exits(0)
	found := sharersOf(t, r)
	if len(found) != 2 {
		t.Errorf("%d workers have said where they are:\n%s", len(found), r.stdout)
	}
	for rank, s := range found {
		if s.UUID != uuid || s.MPS == nil || s.MPS.Limit != 2<<30 {
			t.Errorf("rank %s: %+v", rank, s)
		}
	}
	noMPSLeft(t, h)
}
