//go:build linux

package stacks

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

// Variables of torch's flight recorder (torch/csrc/distributed/c10d, ProcessGroupNCCL): torch appends the rank to both,
// and ".pipe" to the pipe.
const (
	recorderPipe = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
	recorderFile = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
)

// recorderWait is how long torch's recorder may take.
const recorderWait = 3 * time.Second

// RecorderEnv has torch's flight recorder listen in the folder of sockets, and write beside the rank's output.
func RecorderEnv(place rundir.Place, s *message.Start) map[string]string {
	if !s.Recorder {
		return nil
	}
	return map[string]string{
		recorderPipe: filepath.Join(place.Sockets, fmt.Sprintf("fr-%d-", s.Attempt)),
		recorderFile: filepath.Join(place.State, fmt.Sprintf("attempt-%d", s.Attempt), "nccl-trace-rank-"),
	}
}

// recording is a file that torch's flight recorder was asked to write.
type recording struct {
	path   string
	before time.Time
}

// askRecorder asks torch's flight recorder in a process, where it listens.
func askRecorder(pid int) recording {
	pipe, _ := proc.EnvironOf(pid, recorderPipe)
	file, _ := proc.EnvironOf(pid, recorderFile)
	rank, _ := proc.EnvironOf(pid, "RANK")
	if pipe == "" || file == "" || rank == "" {
		return recording{}
	}
	fd, err := unix.Open(pipe+rank+".pipe", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil { // ENXIO: nobody listens
		return recording{}
	}
	defer unix.Close(fd)
	r := recording{path: file + rank, before: time.Now()}
	if _, err := unix.Write(fd, []byte("1\n")); err != nil {
		return recording{}
	}
	return r
}

// await waits until the file is there; "": it does not come.
func (r recording) await() string {
	if r.path == "" {
		return ""
	}
	for end := r.before.Add(recorderWait); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		info, err := os.Stat(r.path)
		if err == nil && info.Size() > 0 && !info.ModTime().Before(r.before.Add(-time.Second)) {
			return r.path
		}
	}
	return ""
}
