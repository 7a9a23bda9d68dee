//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

func TestKillsForWantOfMemoryAreCountedByEitherKindOfCgroup(t *testing.T) {
	machine := map[string]string{"proc/vmstat": "nr_free_pages 100\noom_kill 7\n", "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   2048 kB\n"}
	v2 := readCounters(hostfstest.Tree(t, hostfstest.Merge(machine, map[string]string{
		"proc/self/cgroup": "0::/user.slice/a.scope\n", "sys/fs/cgroup/user.slice/a.scope/memory.events": "low 0\noom 3\noom_kill 2\n",
		"sys/fs/cgroup/user.slice/a.scope/memory.max": "1073741824\n", "sys/fs/cgroup/user.slice/a.scope/memory.peak": "1073741000\n",
	})))
	if *v2.host != 7 || *v2.cgroup != 2 || v2.limit != 1<<30 || v2.peak != 1073741000 || v2.available != 2<<20 || v2.path != "/user.slice/a.scope" {
		t.Errorf("v2: %+v", v2)
	}
	v1 := readCounters(hostfstest.Tree(t, hostfstest.Merge(machine, map[string]string{
		"proc/self/cgroup": "9:cpu:/x\n4:memory:/docker/1\n", "sys/fs/cgroup/memory/docker/1/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
		"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/docker/1/memory.max_usage_in_bytes": "4096\n",
	})))
	if *v1.cgroup != 5 || v1.limit != 0 || v1.peak != 4096 {
		t.Errorf("v1: %+v", v1)
	}
	if none := readCounters(hostfstest.Tree(t, map[string]string{"proc/self/cgroup": "0::/\n"})); none.host != nil || none.cgroup != nil {
		t.Errorf("nothing to be known: %+v", none)
	}
}

func TestOnlyWhatMattersIsKeptOfTheKernelsLog(t *testing.T) {
	if isRelevant("usb 1-1: new device") || !isRelevant("NVRM: Xid (PCI:0000:0f:00): 79, pid=1") {
		t.Error("what matters is mistaken")
	}
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, []byte("4,1,1,-;oom before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := openKernelLog(path)
	defer log.close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("4,2,2,-;oom after\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := log.lines(); len(got) != 1 || got[0] != "oom after" {
		t.Errorf("since it was opened the log has %q", got)
	}
	var none *kernelLog
	if none.lines() != nil {
		t.Error("a log that may not be read has lines")
	}
}

// A file server that hangs keeps nobody but who looks at it.
func TestALookAtFoldersThatHangIsLeftAlone(t *testing.T) {
	never := make(chan int)
	defer close(never)
	if n, ok := loop.Within(10*time.Millisecond, func() int { return <-never + 1 }); ok || n != 0 {
		t.Errorf("%d, %v", n, ok)
	}
	if n, ok := loop.Within(10*time.Second, func() int { return 7 }); !ok || n != 7 {
		t.Errorf("%d, %v", n, ok)
	}
	s := &baseline{checkpoints: t.TempDir(), wall: time.Now().Add(-time.Hour)}
	if d := s.lookAtFolders(os.TempDir()); d.fullest == nil || s.jobDisk.hangs {
		t.Errorf("%+v", d)
	}
	s.jobDisk.hangs = true
	if d := s.lookAtFolders(os.TempDir()); d != (folders{}) {
		t.Errorf("once it hangs: %+v", d)
	}
	if n := fromDisk(&s.runDisk, func() int { return 7 }); n != 7 {
		t.Error("what ranks have written is not read, because the job's file server hangs")
	}
}
