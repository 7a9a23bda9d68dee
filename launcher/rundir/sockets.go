//go:build linux

package rundir

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sockets is a folder for sockets and what must not reach a shared home. It is locked as long as the process that made
// it lives, so that one that was left behind can be told.
type Sockets struct {
	Dir  string
	lock *os.File
}

// Names of what stands in a folder of sockets.
const (
	ControlSocket = "control.sock"
	SetupEnviron  = "setup.env"
	PluginSockets = "p" // a folder, of a short name
	MPSPipes      = "m" // the same, with one for each daemon of MPS
	// ObserveSockets is the folder of the sockets that workers tell of themselves by.
	ObserveSockets = "o"
	// Hook is the folder of muster's files for Python.
	Hook = "py"
)

const socketsPrefix = "muster-run-"

// maxSocketPath is what sun_path holds on Linux, less the final zero (unix(7)).
const maxSocketPath = 107

// bases are the folders that a folder of sockets may be made in, best first. XDG_RUNTIME_DIR is only used where it
// outlives the login: systemd removes it when the user's last session ends, unless the user lingers.
func bases() []string {
	all := []string{os.TempDir(), "/tmp"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && lingers() {
		all = append([]string{dir}, all...)
	}
	return all
}

// MakeSockets makes a new folder of sockets.
func MakeSockets() (*Sockets, error) {
	var lastErr error
	for _, base := range bases() {
		s, err := makeSockets(base)
		if err == nil {
			return s, nil
		}
		lastErr = err
	}
	return nil, fmt.Errorf("make socket folder: %w", lastErr)
}

// makeSockets makes the folder under another name first: by its own it is never seen without its lock.
func makeSockets(base string) (*Sockets, error) {
	made, err := os.MkdirTemp(base, "."+socketsPrefix)
	if err != nil {
		return nil, err
	}
	s := &Sockets{Dir: filepath.Join(base, filepath.Base(made)[1:])}
	if len(s.Dir)+len("/"+ControlSocket) > maxSocketPath {
		err = fmt.Errorf("%s is too long a path for a socket", s.Dir)
	}
	if err == nil {
		s.lock, err = lockFolder(made)
	}
	if err == nil {
		err = os.Rename(made, s.Dir)
	}
	if err != nil {
		os.Remove(made)
		return nil, err
	}
	return s, nil
}

func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Remove removes a folder of sockets, by the path of one's own or of a process that is no more. Only what muster puts
// there is removed.
func Remove(dir string) {
	for _, name := range []string{ControlSocket, SetupEnviron, Observed, Observed + ".new"} {
		os.Remove(filepath.Join(dir, name))
	}
	for _, name := range []string{PluginSockets, MPSPipes, ObserveSockets, Hook} { // with what killed processes left
		os.RemoveAll(filepath.Join(dir, name))
	}
	os.Remove(dir)
}

// SweepSockets removes the folders of this user's processes that are no more.
func SweepSockets() {
	for _, base := range bases() {
		left, _ := filepath.Glob(filepath.Join(base, socketsPrefix+"*"))
		for _, dir := range left {
			if !isOwn(dir) {
				continue
			}
			if lock, err := lockFolder(dir); err == nil {
				Remove(dir)
				lock.Close()
			}
		}
	}
}

func isOwn(dir string) bool {
	var stat unix.Stat_t
	return unix.Lstat(dir, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR && int(stat.Uid) == os.Getuid()
}

func lingers() bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", os.Getenv("USER")))
	return err == nil && os.Getenv("USER") != ""
}
