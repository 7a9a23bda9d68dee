//go:build linux

package worker

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/kernellog"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How much of what a worker has written is reported with its end.
const (
	maxStderr    = 48 << 10
	maxStdout    = 16 << 10
	maxErrorFile = 64 << 10
	maxGoodEnd   = 4 << 10 // of one that ended well: enough to see what it survived
)

// maxCheckpointFiles bounds a walk through a checkpoint folder, which may lie on a slow file system.
const maxCheckpointFiles = 20_000

// baseline is the state of a host when workers were started: what counts is how it changes.
type baseline struct {
	workers          int // that still compare with it
	oom              oomCounters
	kernel           *kernelLog
	wall             time.Time // that files are compared with
	checkpoints      string    // folder; "": none
	jobDisk, runDisk disk      // where the job's folders lie, and where the run's does
}

func newBaseline(checkpoints string) *baseline {
	return &baseline{
		oom: readCounters(""), kernel: openKernelLog(kernellog.Path), wall: time.Now(), checkpoints: checkpoints,
	}
}

func (b *baseline) closeUnused() {
	if b.workers == 0 {
		b.kernel.close()
	}
}

// disk is a place of files. It hangs once something there took too long.
type disk struct{ hangs bool }

// fromDisk returns what f finds on a disk, and nothing where that takes too long, or did so before: f is then left to
// itself.
func fromDisk[T any](d *disk, f func() T) (found T) {
	if d.hangs {
		go f()
		return found
	}
	found, ok := loop.Within(loop.DiskWait, f)
	d.hangs = !ok
	return found
}

func succeeded(e *message.Ended) bool { return e.Code == 0 && e.Signal == "" }

type written struct{ stdout, stderr, errorFile []byte }

type folders struct {
	checkpoint float64 // as newestAfter has it
	fullest    *evidence.Space
}

func (s *Set) evidence(w *Worker, e *message.Ended) *evidence.Worker {
	stdout, stderr := maxStdout, maxStderr
	if succeeded(e) {
		stdout, stderr = maxGoodEnd, maxGoodEnd
	}
	found := &evidence.Worker{PIDs: []int{w.Child.ID.PID}, Age: link.Now().Sub(w.Began).Seconds()}
	if latest := w.Socket.Latest(); !latest.Empty() {
		found.Observed = latest
	}
	files := fromDisk(&w.baseline.runDisk, func() (all written) {
		all.stdout, _ = ranklog.Tail(w.Log.Path(), ranklog.Stdout, stdout)
		all.stderr, _ = ranklog.Tail(w.Log.Path(), ranklog.Stderr, stderr)
		path := filepath.Join(filepath.Dir(w.Log.Path()), fmt.Sprintf("rank-%d.error.json", w.Rank))
		all.errorFile, _ = os.ReadFile(path)
		return all
	})
	found.Stdout, found.Stderr = files.stdout, files.stderr
	if succeeded(e) {
		return found
	}
	found.Devices, found.ErrorFile = s.Devices(w), files.errorFile[:min(len(files.errorFile), maxErrorFile)]
	job := w.baseline.lookAtFolders(s.Place.State, s.Workdir, os.TempDir())
	found.Checkpoint, found.Disk = job.checkpoint, job.fullest
	before, after := w.baseline.oom, readCounters("")
	found.Cgroup = before.path
	found.Memory = evidence.Memory{
		CgroupBefore: before.cgroup, CgroupAfter: after.cgroup, HostBefore: before.host, HostAfter: after.host,
		Limit: after.limit, Peak: after.peak, Available: after.available,
	}
	found.Kernel = w.KernelLines()
	found.Shm = spaceOf("/dev/shm")
	return found
}

// KernelLines are the lines of the kernel's log since a worker was started that may be about its end.
func (w *Worker) KernelLines() []string { return w.baseline.kernel.lines() }

func (b *baseline) lookAtFolders(paths ...string) folders {
	checkpoints, wall := b.checkpoints, b.wall
	return fromDisk(&b.jobDisk, func() folders {
		return folders{newestAfter(checkpoints, wall), fullest(append(paths, checkpoints)...)}
	})
}

// newestAfter is how many seconds after a moment the newest file below a folder was written; 0 where none was.
func newestAfter(folder string, since time.Time) float64 {
	if folder == "" {
		return 0
	}
	newest, seen := 0.0, 0
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if seen++; seen > maxCheckpointFiles {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return nil // what cannot be read says nothing
		}
		if info, err := entry.Info(); err == nil {
			newest = max(newest, info.ModTime().Sub(since).Seconds())
		}
		return nil
	})
	return newest
}

// fullest is the file system with the least room among those of these folders.
func fullest(paths ...string) (found *evidence.Space) {
	for _, path := range paths {
		s := spaceOf(path)
		if path != "" && s != nil && s.Total > 0 && (found == nil || s.Free < found.Free) {
			found = s
		}
	}
	return found
}

func spaceOf(path string) *evidence.Space {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return nil
	}
	return &evidence.Space{Path: path, Total: s.Blocks * uint64(s.Bsize), Free: s.Bavail * uint64(s.Bsize)}
}
