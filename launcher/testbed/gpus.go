//go:build linux

package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// This file gives hosts GPUs: mounts made in their namespaces once they have booted.

// gpuPlaces are where a host has what belongs to its GPUs.
var (
	gpuLibrary  = "/usr/lib/" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu/libnvidia-ml.so.1"
	gpuPrograms = "/usr/bin"
)

// gpuState is what a host has of GPUs; h.gpuMu guards it.
type gpuState struct {
	scenario *gpus.Scenario
	init     *initProcess // whose namespaces are furnished
	tree     []gpus.Entry // that lies in them
}

// GPUFolder is where the host has its scenario and what processes hold, as the host sees
// it (see package gpus).
const GPUFolder = gpus.Folder

// GPUs is the host's scenario, a copy; nil: it has no GPUs.
func (h *Host) GPUs() *gpus.Scenario {
	h.gpuMu.Lock()
	defer h.gpuMu.Unlock()
	if h.gpu.scenario == nil {
		return nil
	}
	return h.gpu.scenario.Clone()
}

// SetGPUs makes the host's GPUs look otherwise from now on, for those too who have the
// library open. The host keeps them over Stop and Start. Processes that hold memory go on
// doing so, where their GPU is still there. Nil takes everything of NVIDIA's away.
func (h *Host) SetGPUs(s *gpus.Scenario) error {
	h.gpuMu.Lock()
	defer h.gpuMu.Unlock()
	if s == nil {
		s = &gpus.Scenario{Name: "none", Init: gpus.InitDriverNotLoaded, NoLibrary: true, NoProgram: true, NoMPS: true}
	}
	h.gpu.scenario = s.Clone()
	if !h.running() {
		return nil
	}
	return h.furnishGPUs()
}

// RaiseXid lets the driver of the host report an error of a GPU.
func (h *Host) RaiseXid(uuid string, xid uint64) error {
	return h.Do(func() error { return gpus.RaiseXid(gpus.Folder, uuid, xid) })
}

// RaiseECC lets the driver of the host report an error of a GPU's memory, corrected or,
// double, not.
func (h *Host) RaiseECC(uuid string, double bool) error {
	return h.Do(func() error { return gpus.RaiseECC(gpus.Folder, uuid, double) })
}

// bootGPUs gives a host that has just booted its GPUs.
func (h *Host) bootGPUs() error {
	h.gpuMu.Lock()
	defer h.gpuMu.Unlock()
	if h.gpu.scenario == nil {
		return nil
	}
	return h.furnishGPUs()
}

// furnishGPUs puts the scenario in force on the host. The programs are read before: inside
// the host the cache may not be in sight.
func (h *Host) furnishGPUs() error {
	programs, err := readPrograms(h.gpu.scenario)
	if err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	init, s, tree := h.current(), h.gpu.scenario, h.gpu.scenario.Tree()
	err = h.Do(func() error {
		if h.gpu.init != init {
			if err := coverForGPUs(); err != nil {
				return err
			}
			h.gpu.init, h.gpu.tree = init, nil
		}
		if err := s.Write(gpus.Folder); err != nil {
			return err
		}
		if err := programs.install(s); err != nil {
			return err
		}
		if reflect.DeepEqual(h.gpu.tree, tree) {
			return nil
		}
		if err := clearGPUTree(); err != nil {
			return err
		}
		h.gpu.tree = tree
		return gpus.Place("/", tree)
	})
	if err != nil {
		return fmt.Errorf("testbed: GPUs of %s: %w", h.Name, err)
	}
	return nil
}

// programFiles are the contents of files.
type programFiles struct{ library, smi, worker, mpsControl, mpsServer []byte }

func readPrograms(s *gpus.Scenario) (p programFiles, err error) {
	built, err := gpus.Build()
	if err != nil {
		return p, err
	}
	if built.Library, err = gpus.Library(s); err != nil {
		return p, err
	}
	for _, f := range []struct {
		into *[]byte
		path string
	}{{&p.library, built.Library}, {&p.smi, built.NvidiaSMI}, {&p.worker, built.Worker}, {&p.mpsControl, built.MPSControl}, {&p.mpsServer, built.MPSServer}} {
		if *f.into, err = os.ReadFile(f.path); err != nil {
			return p, err
		}
	}
	return p, nil
}

// install puts the programs where the real ones are, and takes away those that the
// scenario has not. A file that is there is not written to but replaced: processes may
// have it mapped.
func (p programFiles) install(s *gpus.Scenario) error {
	for _, f := range []struct {
		path    string
		content []byte
		missing bool
	}{
		{gpuLibrary, p.library, s.NoLibrary},
		{filepath.Join(gpuPrograms, "nvidia-smi"), p.smi, s.NoProgram},
		{filepath.Join(gpuPrograms, "cudaworker"), p.worker, false},
		{filepath.Join(gpuPrograms, gpus.MPSControl), p.mpsControl, s.NoMPS},
		{filepath.Join(gpuPrograms, gpus.MPSServer), p.mpsServer, s.NoMPS},
	} {
		there, err := os.ReadFile(f.path)
		switch {
		case f.missing && err == nil:
			err = os.Remove(f.path)
		case f.missing:
			err = nil
		case err != nil || !bytes.Equal(there, f.content):
			if err = os.WriteFile(f.path+".new", f.content, 0o755); err == nil {
				err = os.Rename(f.path+".new", f.path)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// coverForGPUs covers what the host shares with the machine, so that files can be added:
// folders of programs by overlays, those of the kernel by folders in memory which show
// most of what was there. The machine's own PCI devices and NUMA nodes are out of sight, and
// the logs of MPS are the host's own.
func coverForGPUs() error {
	if err := os.MkdirAll(gpus.Folder, 0o755); err != nil {
		return err
	}
	if err := overlay(gpuPrograms, filepath.Dir(gpuLibrary)); err != nil {
		return err
	}
	for _, c := range []struct {
		folder string
		keep   func(name string) bool
		flags  uintptr
	}{
		{"/sys/devices", func(name string) bool { return !strings.HasPrefix(name, "pci") }, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys/devices/system/node", none, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys/class", func(name string) bool { return name != "infiniband" }, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys/bus/pci", none, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/proc/driver", none, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/dev", func(name string) bool { return !strings.HasPrefix(name, "nvidia") && name != "infiniband" }, unix.MS_NOSUID},
		{"/var/log", func(name string) bool { return name != "nvidia-mps" }, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := cover(c.folder, c.keep, c.flags); err != nil {
			return fmt.Errorf("cover %s: %w", c.folder, err)
		}
	}
	return nil
}

func none(string) bool { return false }

// overlay lays a folder in memory over each of these folders.
func overlay(folders ...string) error {
	layers := filepath.Join(gpus.Folder, "layers")
	if err := os.Mkdir(layers, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", layers, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for i, folder := range folders {
		upper, work := fmt.Sprintf("%s/upper%d", layers, i), fmt.Sprintf("%s/work%d", layers, i)
		for _, dir := range []string{upper, work} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount("overlay", folder, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)); err != nil {
			return fmt.Errorf("mount overlay on %s: %w", folder, err)
		}
	}
	// The overlays hold on to it; nobody else has to see it.
	if err := unix.Unmount(layers, unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove(layers)
}

// cover mounts a folder in memory and brings back into it those things that keep wants.
func cover(folder string, keep func(name string) bool, flags uintptr) error {
	things, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // such as /sys/bus/pci where the kernel has no PCI
	}
	if err != nil {
		return err
	}
	var back []func() error
	for _, thing := range things {
		if !keep(thing.Name()) {
			continue
		}
		again, err := bring(filepath.Join(folder, thing.Name()))
		if err != nil {
			return err
		}
		back = append(back, again)
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", flags, "mode=0755"); err != nil {
		return err
	}
	for _, again := range back {
		if err := again(); err != nil {
			return err
		}
	}
	return nil
}

// bring returns what makes a thing anew where it was: folders and files by mounting them,
// links and devices as such.
func bring(path string) (again func() error, err error) {
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return nil, err
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return func() error { return os.Symlink(target, path) }, err
	case unix.S_IFCHR, unix.S_IFBLK:
		return func() error {
			if err := unix.Mknod(path, info.Mode, int(info.Rdev)); err != nil {
				return err
			}
			return errors.Join(os.Chown(path, int(info.Uid), int(info.Gid)), unix.Chmod(path, info.Mode&0o7777))
		}, nil
	case unix.S_IFDIR, unix.S_IFREG:
		t, err := takeTree(bind{Source: path, Target: path})
		return t.attach, err
	default: // pipes and sockets are of no use to anybody there
		return func() error { return nil }, nil
	}
}

// clearGPUTree takes away what a scenario before this one had laid out.
func clearGPUTree() error {
	var errs []error
	for _, pattern := range []string{"/sys/bus/pci/*", "/sys/devices/pci*", "/sys/devices/system/node/*", "/sys/class/infiniband",
		"/proc/driver/nvidia", "/dev/nvidia*", "/dev/infiniband"} {
		paths, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range slices.Backward(paths) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}
