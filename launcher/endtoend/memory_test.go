//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// memoryLimit is for all of a run on a host. The hungry worker gets past it in a moment.
const memoryLimit = 256 << 20

// hungry takes memory until something ends it: tail keeps the last line, which has no end.
const hungry = "exec tail /dev/zero"

// memoryGroup makes a cgroup with a limit of memory, and returns the file that takes
// processes into it.
func memoryGroup(t *testing.T) string {
	t.Helper()
	// Where cgroup v1 has the controller, and where v2 has it.
	root, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, limit)); err != nil {
		root, limit = "/sys/fs/cgroup", "memory.max"
	}
	group, err := os.MkdirTemp(root, "muster-endtoend-")
	if err != nil {
		t.Skipf("this machine's cgroups cannot be used: %v", err)
	}
	t.Cleanup(func() { eventually(t, "the group is empty", func() bool { return os.Remove(group) == nil }) })
	if err := os.WriteFile(filepath.Join(group, limit), fmt.Append(nil, memoryLimit), 0); err != nil {
		t.Skipf("this machine's cgroups do not limit memory: %v", err)
	}
	_ = os.WriteFile(filepath.Join(group, "memory.swap.max"), []byte("0"), 0) // where there is swap
	return filepath.Join(group, "cgroup.procs")
}

// limitHost has everything that comes to a host by SSH from now on run in a cgroup, as a
// container's processes do.
func limitHost(t *testing.T, h *testbed.Host, procs string) {
	t.Helper()
	sshd := process(t, h, "sshd:")
	put := func(procs string) {
		for _, p := range sshd {
			if err := os.WriteFile(procs, fmt.Append(nil, p.MachinePID), 0); err != nil {
				t.Error(err)
			}
		}
	}
	was, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", sshd[0].MachinePID))
	if err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(filepath.Dir(filepath.Dir(procs)), "cgroup.procs")
	for line := range strings.Lines(string(was)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); parts[1] == "memory" || parts[1] == "" && !strings.HasPrefix(procs, "/sys/fs/cgroup/memory/") {
			back = filepath.Join(filepath.Dir(filepath.Dir(procs)), parts[2], "cgroup.procs")
		}
	}
	t.Cleanup(func() { put(back) })
	put(procs)
}

// isOf checks the class of the first cause, and where it was.
func (r restartReport) isOf(t *testing.T, class, host string) {
	t.Helper()
	switch c := r.FirstCause; {
	case c == nil:
		t.Fatalf("there is no cause: %+v", r)
	case c.Class != class || c.Host != host:
		t.Errorf("the cause is %s on %s, want %s on %s: %+v", c.Class, c.Host, class, host, *c)
	}
}

// evidenceHas checks that the evidence of the first cause has texts.
func (r restartReport) evidenceHas(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(strings.Join(r.FirstCause.Evidence, "\n"), text) {
			t.Errorf("the evidence lacks %q: %q", text, r.FirstCause.Evidence)
		}
	}
}

// B31
func TestAKillIsOutOfMemoryOnlyWhereTheKernelCountedOne(t *testing.T) {
	bed := threeHosts(t)
	limitHost(t, bed.Host("host-a"), memoryGroup(t))
	own := memoryGroup(t)
	for _, c := range []struct {
		name, script string
		status       int
		class        string
		evidence     string
		cgroup       bool
	}{
		{"in the cgroup of the run", hungry, 137, "oom.host", "oom_kill", true},
		{"a child of a shell", "sh -c '" + hungry + "'\nexit $?", 137, "oom.host", "oom_kill", true},
		{"a child that a program outlives", "sh -c '" + hungry + "'\nexit 1", 1, "oom.host", "oom_kill", true},
		{"in a cgroup of its own", "echo $$ >" + own + "\n" + hungry, 137, "oom.host", "Memory cgroup out of memory", true},
		{"killed by somebody", "kill -KILL $$", 137, "killed.unknown", "did not change", false},
		{"a child killed by somebody", "sh -c 'kill -KILL $$'\nexit $?", 137, "killed.unknown", "did not change", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{script: "[ $RANK = 1 ] || exec sleep 1000\n" + c.script, hosts: []string{"host-z", "host-a"}, more: `stop { grace = "2s" }`}).exits(c.status)
			rep := u.lastReport()
			rep.isOf(t, c.class, "host-a")
			rep.evidenceHas(t, c.evidence)
			if got := rep.FirstCause.Numbers["scope_cgroup"] == 1; got != c.cgroup {
				t.Errorf("the limit of a cgroup: %v, want %v", got, c.cgroup)
			}
			if c.evidence == "oom_kill" && rep.FirstCause.Numbers["memory_limit"] != memoryLimit {
				t.Errorf("numbers %v", rep.FirstCause.Numbers)
			}
			if c.class != "oom.host" {
				r.saysNothingOf("oom.")
			}
		})
	}
}

// B72
func TestASmallShmIsNamedBehindABusError(t *testing.T) {
	bed := threeHosts(t)
	smallDisk(t, bed.Host("host-a"), "/dev/shm", "1m")
	// What torch does: a file of the size wanted, which has no room yet.
	const mapped = `python3 -c '
import mmap, os
f = os.open("/dev/shm/torch_1", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 8 << 20)
m = mmap.mmap(f, 8 << 20)
for at in range(0, 8 << 20, 4096): m[at] = 1'`
	const written = `python3 -c '
f = open("/dev/shm/batch", "wb", 0)
while True: f.write(bytes(65536))'`
	for _, c := range []struct {
		name, script string
		status       int
	}{
		{"bus error", "exec " + mapped, 135},
		{"bus error behind a shell", mapped + "\nexit $?", 135},
		{"bus error behind a wrapper", mapped + "\nexit 249", 249},
		{"no space left", "exec " + written, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{script: "[ $RANK = 1 ] || exec sleep 1000\n" + c.script, hosts: []string{"host-z", "host-a"}, more: `stop { grace = "2s" }`}).exits(c.status)
			rep := u.lastReport()
			rep.isOf(t, "oom.shm", "host-a")
			rep.evidenceHas(t, "/dev/shm has", "of 1 MiB")
			if rep.FirstCause.Numbers["shm_total"] != 1<<20 {
				t.Errorf("numbers %v", rep.FirstCause.Numbers)
			}
			if c.status == 249 && rep.FirstCause.Confidence == "certain" {
				t.Error("what a wrapper may have made of a signal is taken for certain")
			}
			r.says("/dev/shm")
		})
	}
	t.Run("enough room", func(t *testing.T) {
		u := newUser(t, bed)
		u.runJob(job{script: "kill -BUS $$", hosts: []string{"host-z"}}).exits(135).says("SIGBUS", "/dev/shm has")
		u.lastReport().isOf(t, "crash.bus", "host-z")
	})
}

// alien holds memory of a device of a host in another user's name until it is told to go.
func alien(t *testing.T, h *testbed.Host, uuid, size string) (leave func()) {
	t.Helper()
	holders := func() (n int) {
		for _, held := range holdings(t, h) {
			if held.UUID == uuid {
				n++
			}
		}
		return n
	}
	before := holders()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _, _ = h.Run(ctx, "cudaworker", "-device", uuid, "-bytes", size, "-uid", "1042", "-for", "1m") // killed below
	}()
	leave = sync.OnceFunc(func() { cancel(); <-gone })
	t.Cleanup(leave)
	eventually(t, "somebody else holds memory", func() bool { return holders() > before })
	return leave
}

func holds(t *testing.T, h *testbed.Host, uuid string) bool {
	t.Helper()
	for _, held := range holdings(t, h) {
		if held.UUID == uuid {
			return true
		}
	}
	return false
}

// crowded is a job whose first attempt wants more memory than somebody else leaves it.
func (u *user) crowded(first, more string) string {
	u.t.Helper()
	script := "echo $TORCHELASTIC_RESTART_COUNT >>" + u.path("attempts") + "\n" + first + "\nexec cudaworker -bytes 30GiB -for 300ms\n"
	return u.file("crowded.hcl", fmt.Sprintf("job \"c\" {\n  command = [\"sh\", %q]\n  hosts \"ssh\" {\n    names = [\"l40s\"]\n  }\n  ranks {\n    devices = [1]\n  }\n  stop { grace = \"1s\" }\n%s\n%s\n}\n",
		u.file("crowded.sh", script), machinesOwn, more))
}

// B35
func TestWhoHoldsTheMissingGPUMemoryIsNamedAndWaitedFor(t *testing.T) {
	u := newUser(t, theMachines(t))
	h, uuid := u.bed.Host("l40s"), cards(t, "l40s")[1].UUID
	// The first attempt sees somebody come and take 30 of 44 GiB.
	first := fmt.Sprintf("[ $TORCHELASTIC_RESTART_COUNT != 0 ] || { touch %[1]s/began; cudaworker -bytes 1GiB -until %[1]s/full; }", u.dir)
	path := u.crowded(first, `
  restart {
    attempts = 2
    backoff  = "0s"
    on "oom.foreign_process" {
      wait_memory = "20s"
    }
  }`)
	l := u.start("run", path)
	l.waitToSay("every rank was seen on its GPU")
	leave := alien(t, h, uuid, "30GiB")
	l.waitToSay("1042")
	u.file("full", "")
	l.waitToSay("starting again")
	pass(t, 1500*time.Millisecond) // several looks at the device
	if n := strings.Count(u.read("attempts"), "\n"); n != 1 {
		t.Errorf("%d attempts although the memory is not free", n)
	}
	leave()
	l.wait().exits(0)
	rep := u.lastReport()
	if n := strings.Count(u.read("attempts"), "\n"); n != 2 || len(rep.Attempts) != 2 {
		t.Errorf("%d attempts: %+v", n, rep.Attempts)
	}
	if a := rep.Attempts[0]; a.Class != "oom.foreign_process" || !strings.Contains(a.Message, "1042") || !strings.Contains(a.Reason, "20s") {
		t.Errorf("the first attempt: %+v", a)
	}
}

// B35
func TestWhoHeldGPUMemoryBeforeTheRunIsWaitedForToo(t *testing.T) {
	u := newUser(t, theMachines(t))
	h, uuid := u.bed.Host("l40s"), cards(t, "l40s")[1].UUID
	leave := alien(t, h, uuid, "30GiB")
	l := u.start("run", u.crowded("", `
  restart {
    attempts = 2
    backoff  = "0s"
    on "oom.foreign_process" {
      wait_memory = "20s"
    }
  }`))
	l.waitToSay("starting again")
	pass(t, 1500*time.Millisecond)
	if n := strings.Count(u.read("attempts"), "\n"); n != 1 {
		t.Errorf("%d attempts although the memory is not free", n)
	}
	leave()
	l.wait().exits(0)
	if a := u.lastReport().Attempts[0]; a.Class != "oom.foreign_process" || !strings.Contains(a.Message, "used by somebody else") {
		t.Errorf("the first attempt: %+v", a)
	}
}
