//go:build linux

// Package hungdisk has file systems for tests that can be made to hang, as one of a file server
// that is gone does. It runs programs, so a test that uses it
// must not be in one process with a proc.Reaper, which would reap them.
package hungdisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a file system.
type Disk struct {
	t    testing.TB
	Path string // where it is mounted
}

// New makes one that lasts as long as the test. It is not there where files cannot be mounted,
// as in containers without loop devices: what must not wait for a disk has been told so by a
// machine that can.
func New(t testing.TB) (d Disk, is bool) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	image, path := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, argv := range [][]string{
		{"truncate", "-s", "16M", image},
		{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop", image, path},
	} {
		if said, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Logf("this machine mounts no file system of a file: %q: %v: %s", argv, err, said)
			return d, false
		}
	}
	d = Disk{t, path}
	t.Cleanup(func() {
		_ = d.freeze("-u") // it fails where it is not frozen
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d, true
}

func (d Disk) freeze(flag string) error { return exec.Command("fsfreeze", flag, d.Path).Run() }

// Hang has whatever writes to it wait.
func (d Disk) Hang() {
	d.t.Helper()
	if err := d.freeze("-f"); err != nil {
		d.t.Fatal(err)
	}
}

// GoOn ends that.
func (d Disk) GoOn() {
	d.t.Helper()
	if err := d.freeze("-u"); err != nil {
		d.t.Fatal(err)
	}
}

// Soon fails where something takes longer than what waits for no disk.
func Soon(t testing.TB, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Fatalf("%s waits for the disk", what)
	}
}
