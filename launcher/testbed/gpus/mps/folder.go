//go:build linux

package mps

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// Files of a pipe folder.
const (
	clientSocket  = "control"
	commandSocket = "control_privileged"
	logSocket     = "log"
	pidFile       = controlName + ".pid"
)

// pipeFolder is the folder of sockets of this process: CUDA_MPS_PIPE_DIRECTORY, or the
// default.
func pipeFolder() string { return cmp.Or(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), defaultPipes) }

// defaultPipes is where daemon and clients meet where nothing is said.
const defaultPipes = "/tmp/nvidia-mps"

// listen takes possession of the pipe folder. It returns why it cannot, in the words of the
// program.
func (d *daemon) listen() (words string) {
	if d.pipes == defaultPipes {
		_ = os.Mkdir(d.pipes, 0o755) // there, or not to be had: what follows tells
	}
	if syscall.Access(d.pipes, 2|1) != nil { // W_OK, X_OK
		return fmt.Sprintf(cannotAccess, d.pipes)
	}
	unlock, err := lockFolder(d.pipes)
	if err != nil {
		return fmt.Sprintf(cannotAccess, d.pipes)
	}
	defer unlock()
	if pid, err := recorded(d.pipes); err == nil && exists(pid) {
		return alreadyRunning
	}
	for _, s := range []struct {
		name string
		into **net.UnixListener
	}{{clientSocket, &d.clients}, {commandSocket, &d.commands}, {logSocket, &d.logs}} {
		path := filepath.Join(d.pipes, s.name)
		_ = os.Remove(path) // a dead daemon's
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil { // too long a path, too
			return fmt.Sprintf(cannotAccess, d.pipes)
		}
		listener.SetUnlinkOnClose(false)
		if err := os.Chmod(path, 0o666); err != nil { // who may connect, credentials decide
			return fmt.Sprintf(cannotAccess, d.pipes)
		}
		*s.into = listener
	}
	if err := os.WriteFile(filepath.Join(d.pipes, pidFile), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
		return fmt.Sprintf(cannotAccess, d.pipes)
	}
	return ""
}

// lockFolder keeps two daemons from starting in one folder at a time.
func lockFolder(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// recorded is the process of the folder's daemon, dead or alive.
func recorded(pipes string) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(pipes, pidFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// exists tells whether there is a process of this number, whatever it is.
func exists(pid int) bool {
	_, err := gpus.StartTime(pid)
	return err == nil
}
