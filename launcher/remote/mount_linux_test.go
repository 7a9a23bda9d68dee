package remote

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mount puts a small file system in the place of the cache.
func mount(t *testing.T, options string, flags uintptr) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	must(t, os.Mkdir(dir, 0o755))
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", flags, options))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func TestNoSpace(t *testing.T) {
	newClient(t)
	dir := mount(t, "size=1m", 0)
	s, c := pair(t, "SetEnv XDG_CACHE_HOME="+dir)
	d := c.dialer()
	d.Programs = bigPrograms(4 << 20)
	h := connect(t, d, s.target())
	startFails(t, h, agentLaunch(), KindNoSpace, "a program of 4.0 MiB (1.0 MiB free", "No space left")
	noLeftovers(t, dir, 0)
	startFails(t, h, agentLaunch(), KindNoSpace)
}

func TestNoExec(t *testing.T) {
	dir := mount(t, "size=1m", syscall.MS_NOEXEC)
	s, c := pair(t, "SetEnv XDG_CACHE_HOME="+dir)
	startFails(t, connect(t, c.dialer(), s.target()), agentLaunch(), KindNoExec, "noexec", dir)
}

func TestCacheCannotBeWritten(t *testing.T) {
	dir := mount(t, "size=1m", syscall.MS_RDONLY)
	s, c := pair(t, "SetEnv XDG_CACHE_HOME="+dir)
	startFails(t, connect(t, c.dialer(), s.target()), agentLaunch(), KindPermission, "Read-only file system", "XDG_CACHE_HOME")
	file := write(t, filepath.Join(t.TempDir(), "file"), "")
	s, c = pair(t, "SetEnv XDG_CACHE_HOME="+file)
	startFails(t, connect(t, c.dialer(), s.target()), agentLaunch(), KindPermission, "Not a directory")
}
