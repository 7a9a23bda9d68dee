package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/hostfs"
	"github.com/muster-dev/muster/launcher/kernellog"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How much of what a worker has written goes along with the news of its end.
const (
	stderrKept    = 48 << 10
	stdoutKept    = 16 << 10
	errorFileKept = 64 << 10
	// endedWellKept is that of one that ended well: enough to see what it survived.
	endedWellKept = 4 << 10
	kernelLines   = 64
)

// scenery is what a host looked like when workers were started: what counts is how it
// changes.
type scenery struct {
	workers     int // that still look at it
	counters    oomCounters
	kernel      *kernelLog
	wall        time.Time // that files are compared with
	checkpoints string    // folder; "": none
	job, run    disk      // where the job's folders lie, and where the run's does
}

func newScenery(checkpoints string) *scenery {
	return &scenery{counters: readCounters(""), kernel: openKernelLog(kernellog.Path), wall: time.Now(), checkpoints: checkpoints}
}

// show has a worker compare with a scene.
func (w *worker) show(s *scenery) {
	w.scene = s
	s.workers++
}

// leave ends the scene with its last worker.
func (s *scenery) leave() {
	s.workers--
	s.endUnlessShown()
}

func (s *scenery) endUnlessShown() {
	if s.workers == 0 {
		s.kernel.close()
	}
}

// diskWait is how long something on a disk may take. It may be that of a file server that
// hangs, which is why a worker has ended, and the others are to be looked after meanwhile.
const diskWait = 2 * time.Second

// disks is what the job's folders tell.
type disks struct {
	checkpoint float64         // as newestAfter has it
	fullest    *evidence.Space // of all
}

// lookAtDisks looks at the checkpoints, and how full file systems are.
func (s *scenery) lookAtDisks(folders ...string) disks {
	checkpoints, wall := s.checkpoints, s.wall
	return fromDisk(&s.job, func() disks {
		return disks{newestAfter(checkpoints, wall), fullest(append(folders, checkpoints)...)}
	})
}

// disk is where files lie that are looked at.
type disk struct{ hangs bool } // something took too long

// fromDisk returns what f finds on a disk, and nothing where that takes too long, or did so
// before: f is then left to itself.
func fromDisk[T any](d *disk, f func() T) (found T) {
	if d.hangs {
		go f()
		return found
	}
	found, ok := within(diskWait, f)
	d.hangs = !ok
	return found
}

// within returns what f does; ok is unset, and f left alone, where that takes too long.
func within[T any](limit time.Duration, f func() T) (found T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case found = <-done:
		return found, true
	case <-time.After(limit):
		return found, false
	}
}

// mostCheckpointFiles bounds a look through a checkpoint folder, which may lie on a slow file system.
const mostCheckpointFiles = 20_000

// newestAfter is how many seconds after a moment the newest file below a folder was
// written; 0 where none was.
func newestAfter(folder string, since time.Time) float64 {
	if folder == "" {
		return 0
	}
	newest, seen := 0.0, 0
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if seen++; seen > mostCheckpointFiles {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return nil // what cannot be read tells nothing
		}
		if info, err := entry.Info(); err == nil {
			newest = max(newest, info.ModTime().Sub(since).Seconds())
		}
		return nil
	})
	return newest
}

// checkpointFolder is where an attempt's checkpoints are.
func (a *agent) checkpointFolder(path string) string {
	switch {
	case path == "" || filepath.IsAbs(path):
		return path
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(a.facts.Home, path[2:])
	}
	return filepath.Join(a.workdir, path)
}

// evidence gathers what is to be known of a worker that has ended.
func (a *agent) evidence(w *worker, e *message.Ended) *evidence.Worker {
	out, err := stdoutKept, stderrKept
	if e.Code == 0 && e.Signal == "" {
		out, err = endedWellKept, endedWellKept
	}
	found := &evidence.Worker{PIDs: []int{w.child.ID.PID}, Age: link.Now().Sub(w.began).Seconds()}
	if told := w.observer.latest(); !told.Empty() {
		found.Observed = told
	}
	written := fromDisk(&w.scene.run, func() (all writings) {
		all.stdout, _ = ranklog.Tail(w.log.Path(), ranklog.Stdout, out)
		all.stderr, _ = ranklog.Tail(w.log.Path(), ranklog.Stderr, err)
		all.errorFile = firstOf(filepath.Join(filepath.Dir(w.log.Path()), fmt.Sprintf("rank-%d.error.json", w.rank)), errorFileKept)
		return all
	})
	found.Stdout, found.Stderr = written.stdout, written.stderr
	if e.Code == 0 && e.Signal == "" {
		return found
	}
	found.Devices, found.ErrorFile = a.devices(w), written.errorFile
	disks := w.scene.lookAtDisks(a.place.State, a.workdir, os.TempDir())
	found.Checkpoint, found.Disk = disks.checkpoint, disks.fullest
	found.Cgroup = w.scene.counters.path
	after := readCounters("")
	found.Memory = evidence.Memory{
		CgroupBefore: w.scene.counters.cgroup, CgroupAfter: after.cgroup,
		HostBefore: w.scene.counters.host, HostAfter: after.host,
		Limit: after.limit, Peak: after.peak, Available: after.available,
	}
	found.Kernel = w.scene.kernel.lines()
	found.Shm = spaceOf("/dev/shm")
	return found
}

// writings are what a worker has left in files, or the ends of them.
type writings struct{ stdout, stderr, errorFile []byte }

// fullest is the file system with the least room among those of these folders.
func fullest(folders ...string) (found *evidence.Space) {
	for _, folder := range folders {
		if s := spaceOf(folder); folder != "" && s != nil && s.Total > 0 && (found == nil || s.Free < found.Free) {
			found = s
		}
	}
	return found
}

// firstOf reads the beginning of a file, nil where there is none.
func firstOf(path string, most int) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text[:min(len(text), most)]
}

func spaceOf(path string) *evidence.Space {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return nil
	}
	return &evidence.Space{Path: path, Total: s.Blocks * uint64(s.Bsize), Free: s.Bavail * uint64(s.Bsize)}
}

// oomCounters are the kernel's counters of processes that it killed for want of memory.
type oomCounters struct {
	path         string  // of the cgroup
	cgroup, host *uint64 // kills
	limit, peak  uint64
	available    uint64
}

// readCounters reads /proc/vmstat (oom_kill, since Linux 4.13), /proc/meminfo, and of this
// process's own cgroup memory.events, memory.max and memory.peak (cgroup v2), or
// memory.oom_control, memory.limit_in_bytes and memory.max_usage_in_bytes (v1).
func readCounters(root hostfs.Root) oomCounters {
	c := oomCounters{host: counterIn(root.Read("/proc/vmstat"), "oom_kill")}
	if kib := counterIn(strings.ReplaceAll(root.Read("/proc/meminfo"), ":", ""), "MemAvailable"); kib != nil {
		c.available = *kib << 10
	}
	for line := range strings.Lines(root.Read("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			c.readCgroup(root, parts[2], "/sys/fs/cgroup"+parts[2], "memory.events", "memory.max", "memory.peak")
		case parts[1] == "memory":
			c.readCgroup(root, parts[2], "/sys/fs/cgroup/memory"+parts[2], "memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
		}
	}
	return c
}

// unlimited is from where on a limit of cgroup v1 means none: it has the largest number of
// pages there.
const unlimited = 1 << 60

func (c *oomCounters) readCgroup(root hostfs.Root, path, dir, events, limit, peak string) {
	kills := counterIn(root.Read(dir+"/"+events), "oom_kill")
	if kills == nil {
		return
	}
	c.path, c.cgroup = path, kills
	if n, err := strconv.ParseUint(root.Read(dir+"/"+limit), 10, 64); err == nil && n < unlimited {
		c.limit = n
	}
	c.peak, _ = strconv.ParseUint(root.Read(dir+"/"+peak), 10, 64)
}

// counterIn finds the number behind a name at the beginning of a line.
func counterIn(text, name string) *uint64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != name {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return &n
		}
	}
	return nil
}
