//go:build linux

package gpus

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nullDevice is the number of /dev/null.
var nullDevice = int(unix.Mkdev(1, 3))

// Place makes the entries below a root, "/" for the machine itself. Where device files
// may not be made, an empty file stands for one.
func Place(root string, entries []Entry) error {
	for _, e := range entries {
		path := filepath.Join(root, e.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := e.place(path); err != nil {
			return err
		}
	}
	return nil
}

func (e Entry) place(path string) error {
	switch {
	case e.Link != "":
		return os.Symlink(e.Link, path)
	case e.Null:
		err := unix.Mknod(path, unix.S_IFCHR|uint32(e.Mode), nullDevice)
		if errors.Is(err, fs.ErrPermission) {
			err = os.WriteFile(path, nil, e.Mode)
		}
		if err != nil {
			return err
		}
		return os.Chmod(path, e.Mode) // not cut by the umask
	default:
		return os.WriteFile(path, []byte(e.Text), e.Mode)
	}
}

// OnThisMachine is OnCPUs with the CPUs that this process may run on, and the machine's
// memory in equal shares.
func (s *Scenario) OnThisMachine() (*Scenario, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return nil, err
	}
	for i := range s.Nodes {
		s.Nodes[i].Memory = memory.Totalram * uint64(memory.Unit) / uint64(len(s.Nodes))
	}
	return s.OnCPUs(cpus), nil
}
