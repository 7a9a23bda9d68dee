//go:build linux

package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// finding is one of muster check --json and of a report.
type finding struct {
	Code, Severity, Host, Message, Fix string
	GPU, Rank                          *int
}

type checkResult struct {
	Version  int
	Verdict  string
	Findings []finding
}

// check runs muster check.
func (u *user) check(status int, args ...string) (c checkResult) {
	u.t.Helper()
	r := u.run(append([]string{"check"}, append(args, "--json")...)...).exits(status)
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		u.t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	return c
}

func (c checkResult) codes() string {
	var all []string
	for _, f := range c.Findings {
		all = append(all, f.Code+" "+f.Severity)
	}
	return strings.Join(all, ", ")
}

func (c checkResult) has(code string) *finding {
	for i := range c.Findings {
		if c.Findings[i].Code == code {
			return &c.Findings[i]
		}
	}
	return nil
}

// shortOfMemory are findings that this machine gives rise to, not the scenario.
const machinesOwn = `check { ignore = ["shared_memory", "disk_full", "cgroup_memory", "cgroup_pids", "memlock", "nofile", "hca_down", "hca_missing", "verbs_missing", "peer_memory", "torch_missing", "same_subnet", "hidden_processes", "persistence_off", "not_bound", "fabric_manager", "pcie_narrow", "clock_offset"] }`

func TestAHealthyClusterIsPassedInSilence(t *testing.T) {
	u := newUser(t, theMachines(t))
	if c := u.check(0, u.gpuJob([]string{"dgx-a100", "islands"}, "", machinesOwn)); c.Version != 1 {
		t.Errorf("check says %+v", c)
	} else {
		for _, f := range c.Findings {
			if f.Severity != "info" && !strings.HasSuffix(f.Code, "_differs") && f.Code != "fewer_gpus" {
				t.Errorf("%s %s: %s", f.Severity, f.Code, f.Message)
			}
		}
	}
	if u.exists(".local") { // nothing to come back to
		if r := u.run("ps", "--json").exits(0); strings.Contains(r.stdout, `"job": "g"`) {
			t.Errorf("a check is listed as a run: %s", r.stdout)
		}
	}
}

func TestWhatIsWrongWithAGPUKeepsAJobFromStarting(t *testing.T) {
	worn := onThisMachine(t, gpus.Worn())
	bed := ownBed(t, testbed.Options{GPUs: worn})
	u := newUser(t, bed)
	path := u.gpuJob([]string{"node1"}, "", machinesOwn)
	c := u.check(75, path)
	if c.Verdict != "fail" {
		t.Errorf("verdict %s: %s", c.Verdict, c.codes())
	}
	bad := false
	for _, f := range c.Findings {
		bad = bad || f.Severity == "fail" && f.GPU != nil && f.Fix != "" && strings.HasPrefix(f.Message, "node1")
	}
	if !bad {
		t.Errorf("no failing finding with its GPU and what to do: %+v", c.Findings)
	}
	r := u.run("run", path).exits(75)
	if r.stdout != "" {
		t.Errorf("a worker ran: %s", r.stdout)
	}
	u.run("run", path, "--no-check").exits(0)
}

// What the driver has written to the kernel's log since the boot is found there.
func TestErrorsOfAGPUSinceTheBootAreFoundInTheKernelsLog(t *testing.T) {
	scenario := onThisMachine(t, gpus.L40S())
	bed := ownBed(t, testbed.Options{GPUs: scenario})
	u := newUser(t, bed)
	path := u.gpuJob([]string{"node1"}, "", machinesOwn)
	slot, _, _ := strings.Cut(scenario.GPUs[1].PCI, ".")
	log := "4,1,5000000,-;NVRM: Xid (PCI:" + slot + "): 95, pid=77, name=python, Uncontained\n6,2,6000000,-;eth0: link up\n"
	write := func(text string) {
		t.Helper()
		err := bed.Hosts[0].Do(func() error {
			_ = os.Remove("/dev/kmsg") // the host's own: its /dev lies in memory
			return os.WriteFile("/dev/kmsg", []byte(text), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write(log)
	f := u.check(0, path).has("xid_since_boot")
	if f == nil || f.GPU == nil || *f.GPU != 1 || f.Severity != "warn" || !strings.Contains(f.Message, "Xid 95") {
		t.Errorf("found %+v", f)
	}
	write("6,2,6000000,-;eth0: link up\n")
	if f := u.check(0, path).has("xid_since_boot"); f != nil {
		t.Errorf("on a healthy host: %+v", f)
	}
}

func TestAHostThatCannotBeMadeReadyIsAFindingOfCheck(t *testing.T) {
	u := newUser(t, threeHosts(t))
	c := u.check(75, u.write(job{script: "true", hosts: []string{"host-z", "host-a"}, more: machinesOwn + setup("echo no such module >&2; exit 3")}))
	if f := c.has("not_ready"); f == nil || !strings.Contains(f.Message, "setup ended with exit status 3") || !strings.Contains(f.Fix, "no such module") {
		t.Errorf("findings %+v", c.Findings)
	}
	if c := u.check(75, u.gpuJob([]string{"host-z"}, `per_host = "gpu"`)); c.has("no_gpu") == nil {
		t.Errorf("findings %+v", c.Findings)
	}
}

// What a model needs is compared with what the machine's cards have: muster plan shows it,
// muster check finds it, and a run says so before it starts, or refuses where that is wanted.
func TestAModelThatWillNotFitIsSaidBeforeTheStart(t *testing.T) {
	u := newUser(t, theMachines(t))
	block := func(strategy, severity string) string {
		return fmt.Sprintf("memory {\n  parameters = \"70B\"\n  trainable = \"0.3%%\"\n  strategy = %q\n}\ncheck {\n  severity = { memory_does_not_fit = %q }\n}", strategy, severity)
	}
	path := u.gpuJob([]string{"dgx-a100"}, "", block("ddp", "warn"))
	u.run("plan", path).exits(0).prints("0-7", "does not fit", "FSDP or ZeRO stage 3")
	var planned struct {
		Memory struct {
			Verdict string
			Ranks   []struct{ Need, Free uint64 }
		}
	}
	if r := u.run("plan", path, "--json").exits(0); json.Unmarshal([]byte(r.stdout), &planned) != nil || len(planned.Memory.Ranks) != 8 ||
		planned.Memory.Verdict != "does_not_fit" || planned.Memory.Ranks[7].Need <= planned.Memory.Ranks[7].Free {
		t.Errorf("plan --json says %+v", planned.Memory)
	}
	if f := u.check(0, path).has("memory_does_not_fit"); f == nil || f.Severity != "warn" || f.Host != "dgx-a100" {
		t.Errorf("check finds %+v", f)
	}
	u.run("run", path).exits(0).says("memory is estimated not to fit")
	u.run("run", u.gpuJob([]string{"dgx-a100"}, "", block("ddp", "fail"))).exits(75).says("memory is estimated not to fit", "to start all the same: --no-check, or check { ignore = [\"memory_does_not_fit\"] } in the job file")
	r := u.run("run", u.gpuJob([]string{"dgx-a100"}, "", block("fsdp", "fail"))).exits(0)
	if strings.Contains(r.stderr, "not to fit") {
		t.Errorf("with FSDP it says:\n%s", r.stderr)
	}
}

// placed runs a job whose workers stay, until the watch has said something, and returns what
// was said and the report.
func (u *user) placed(path string, says ...string) {
	u.t.Helper()
	l := u.start("run", path)
	for _, text := range says {
		l.waitToSay(text)
	}
	l.signal(syscall.SIGTERM)
	l.wait().exits(143)
}

func TestMusterSeesThatEachRankIsOnItsGPU(t *testing.T) {
	u := newUser(t, theMachines(t))
	u.placed(u.gpuJobFor("1h", []string{"l40s", "islands"}, "", machinesOwn, `stop { grace = "1s" }`), "every rank was seen on its GPU")
	u.run("report", "-", "--json").exits(0).prints(`"placement": "proven"`)
}

// onDevice is a job whose ranks take the devices that a script says.
func (u *user) onDevice(host, script string, more ...string) string {
	u.t.Helper()
	return u.file("wrong.hcl", fmt.Sprintf("job \"w\" {\n  command = [\"sh\", \"-c\", %q]\n  hosts \"ssh\" {\n    names = [%q]\n  }\n  ranks {\n    devices = 2\n  }\n  stop { grace = \"1s\" }\n%s\n}\n",
		script, host, strings.Join(more, "\n")))
}

func TestARankOnAnothersGPUIsNamedWithWhatToDo(t *testing.T) {
	u := newUser(t, theMachines(t))
	// The classic: every rank takes the first device that it sees.
	u.placed(u.onDevice("l40s", "LOCAL_RANK=0 exec cudaworker -for 1h", machinesOwn), "torch.cuda.set_device", "rank 1")
	var rep struct{ Findings []finding }
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range rep.Findings {
		found = found || f.Code == "wrong_gpu" || f.Code == "extra_gpu" || f.Code == "shared_gpu"
	}
	if !found {
		t.Errorf("the report has %+v", rep.Findings)
	}
}

func TestARankOnAnothersGPUEndsTheRunWhereThatIsWanted(t *testing.T) {
	u := newUser(t, theMachines(t))
	u.run("run", u.onDevice("l40s", "LOCAL_RANK=0 exec cudaworker -for 1h", "check { wrong_gpu = \"stop\" }")).
		exits(75).says("rank 1")
}

func TestATaskOnAnothersGPUIsEndedAndTheOthersAreDone(t *testing.T) {
	u := newUser(t, theMachines(t))
	script := fmt.Sprintf("[ $1 != astray ] || exec cudaworker -device %s -for 1h; exec cudaworker -for 1s", cards(t, "l40s")[3].UUID)
	path := u.onDevice("l40s", script, "mode = \"independent\"", `tasks = [["sh", "astray"], ["sh", "1"], ["sh", "2"], ["sh", "3"]]`, "check { wrong_gpu = \"stop\" }")
	u.run("run", path).exits(75).says("task 0")
	var rep struct {
		Ranks []struct {
			Rank int
			Ends []struct {
				Exit  int
				Class string
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Ranks) != 4 {
		t.Fatalf("the report has %+v", rep.Ranks)
	}
	for _, r := range rep.Ranks {
		if want := map[bool]string{true: "wrong_gpu"}[r.Rank == 0]; len(r.Ends) != 1 || r.Ends[0].Class != want || r.Rank != 0 && r.Ends[0].Exit != 0 {
			t.Errorf("task %d has ended as %+v, want the class %q", r.Rank, r.Ends, want)
		}
	}
}

func TestAForeignProcessThatComesLaterIsNamed(t *testing.T) {
	u := newUser(t, theMachines(t))
	host := u.bed.Host("l40s")
	l := u.start("run", u.gpuJobFor("1h", []string{"l40s"}, "", machinesOwn, `stop { grace = "1s" }`))
	l.waitToSay("every rank was seen on its GPU")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = host.Run(ctx, "cudaworker", "-device", cards(t, "l40s")[2].UUID, "-bytes", "3GiB", "-uid", "1042", "-for", "1m")
	}()
	l.waitToSay(", 1042, ")
	cancel()
	<-gone
	l.signal(syscall.SIGTERM)
	l.wait().exits(143)
}
