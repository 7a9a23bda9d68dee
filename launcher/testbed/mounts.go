//go:build linux

package testbed

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cgroups is mounted below /sys, which is mounted anew.
const cgroups = "/sys/fs/cgroup"

// bootIDFile is where the kernel tells its boot_id.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// privateMounts are the folders that a host has for itself, empty at each boot.
var privateMounts = []struct {
	target, kind, options string
	flags                 uintptr
}{
	{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"/dev/pts", "devpts", "ptmxmode=0666,mode=0620,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
	{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"/run", "tmpfs", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
	{"/tmp", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
}

// mountAll gives the host its file system.
func mountAll(o bootOrder) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// What the private folders are about to cover is taken in hand before.
	trees, err := takeTrees(o.Binds)
	if err != nil {
		return err
	}
	if err := mountEtc(o); err != nil {
		return err
	}
	for _, m := range privateMounts {
		unix.Unmount(m.target, unix.MNT_DETACH) // fails where nothing was mounted
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	if err := makeRun(); err != nil {
		return err
	}
	if err := mountBootID(o.BootID); err != nil {
		return err
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return fmt.Errorf("mount %s: %w", t.target, err)
		}
	}
	return nil
}

// mountEtc lays the host's own files over the machine's /etc.
func mountEtc(o bootOrder) error {
	if err := unix.Mount("tmpfs", o.State, "tmpfs", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount on %s: %w", o.State, err)
	}
	upper, work := filepath.Join(o.State, "upper"), filepath.Join(o.State, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	layers := fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", upper, work)
	if err := unix.Mount("overlay", "/etc", "overlay", 0, layers); err != nil {
		return fmt.Errorf("mount overlay on /etc: %w", err)
	}
	// The overlay holds on to it; nobody else has to see it.
	if err := unix.Unmount(o.State, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", o.State, err)
	}
	return writeFiles("/etc", 0o755, o.Etc)
}

// makeRun makes what others expect below /run.
func makeRun() error {
	if err := os.Mkdir("/run/lock", 0o755); err != nil {
		return err
	}
	if err := os.Chmod("/run/lock", 0o777|os.ModeSticky); err != nil {
		return err
	}
	return os.Symlink("/dev/shm", "/run/shm")
}

// mountBootID covers the kernel's boot_id. The file is nowhere else to be seen.
func mountBootID(id string) error {
	const path = "/run/boot_id"
	if err := os.WriteFile(path, []byte(id), 0o444); err != nil {
		return err
	}
	defer os.Remove(path)
	t, err := takeTree(bind{Source: path, Target: bootIDFile, ReadOnly: true})
	if err != nil {
		return err
	}
	return t.attach()
}

// tree is a detached copy of a part of the file system.
type tree struct {
	fd     int
	target string
	dir    bool
}

func takeTrees(binds []bind) ([]tree, error) {
	if _, err := os.Stat(cgroups); err == nil {
		binds = append([]bind{{Source: cgroups, Target: cgroups}}, binds...)
	}
	var trees []tree
	for _, b := range binds {
		t, err := takeTree(b)
		if err != nil {
			return nil, fmt.Errorf("take %s: %w", b.Source, err)
		}
		trees = append(trees, t)
	}
	return trees, nil
}

func takeTree(b bind) (tree, error) {
	info, err := os.Stat(b.Source)
	if err != nil {
		return tree{}, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, b.Source,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, err
	}
	if b.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return tree{}, err
		}
	}
	return tree{fd, b.Target, info.IsDir()}, nil
}

// attach mounts the tree and gives up its descriptor.
func (t tree) attach() error {
	defer unix.Close(t.fd)
	if err := t.makeTarget(); err != nil {
		return err
	}
	return unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func (t tree) makeTarget() error {
	if _, err := os.Stat(t.target); err == nil {
		return nil
	}
	if t.dir {
		return os.MkdirAll(t.target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(t.target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(t.target, nil, 0o644)
}
