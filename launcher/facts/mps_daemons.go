//go:build linux

package facts

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/plugins/nvidia"
)

// commandLength is what the kernel keeps of a program's name (TASK_COMM_LEN less its zero).
const commandLength = 15

// LookForMPS finds MPS's program by the PATH of an environment, daemons among the processes,
// and what one has left.
func LookForMPS(root Root, environ map[string]string) *MPS {
	folders := append([]string{environ["PATH"]}, nvidia.ProgramFolders...)
	found := &MPS{Program: root.LookPath(mps.ControlProgram, strings.Join(folders, ":"), "/")}
	names := userNames(root.Read("/etc/passwd"))
	for _, pid := range processes(root) {
		if d, is := mpsDaemon(root, pid, names); is {
			found.Daemons = append(found.Daemons, d)
		}
	}
	found.Left = leftByMPS(root, cmp.Or(environ[mps.PipeDirectory], mps.DefaultPipeDirectory), found.Daemons, names)
	return found
}

func processes(root Root) []int {
	dir, err := os.Open(string(root) + "/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	entries, _ := dir.Readdirnames(-1)
	var all []int
	for _, name := range entries {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// mpsDaemon reads a process that is a control daemon. The same program is also what talks to
// daemons: a daemon is told by its arguments (-d or -f).
func mpsDaemon(root Root, pid int, names map[uint32]string) (d MPSDaemon, is bool) {
	place := fmt.Sprintf("/proc/%d", pid)
	if root.Read(place+"/comm") != mps.ControlProgram[:commandLength] {
		return d, false
	}
	argv := strings.Split(strings.TrimRight(root.Read(place+"/cmdline"), "\x00"), "\x00")
	if path.Base(argv[0]) != mps.ControlProgram || !slices.ContainsFunc(argv[1:], func(arg string) bool { return arg == "-d" || arg == "-f" }) {
		return d, false
	}
	d.PID, d.User = pid, ownerOf(root, place, names)
	environ, err := os.ReadFile(string(root) + place + "/environ")
	if err != nil || len(environ) == 0 {
		return d, true
	}
	d.Told, d.Pipe = true, mps.DefaultPipeDirectory
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case mps.PipeDirectory:
			d.Pipe = value
		case "CUDA_VISIBLE_DEVICES":
			d.Devices = &value
		case "MUSTER_RUN":
			d.Run = value
		}
	}
	d.Lost = !hasSockets(root, d.Pipe)
	return d, true
}

// hasSockets reports whether a pipe directory has a daemon's socket.
func hasSockets(root Root, dir string) bool {
	_, err := os.Stat(string(root) + path.Join(dir, "control"))
	return err == nil
}

// leftByMPS tells of sockets that no daemon serves.
func leftByMPS(root Root, dir string, daemons []MPSDaemon, names map[uint32]string) string {
	if !hasSockets(root, dir) {
		return ""
	}
	for _, d := range daemons {
		if !d.Told || d.Pipe == dir { // it may be the one that cannot be asked
			return ""
		}
	}
	return fmt.Sprintf("%s, of %s", dir, cmp.Or(ownerOf(root, dir, names), "an unknown user"))
}

func ownerOf(root Root, path string, names map[uint32]string) string {
	info, err := os.Stat(string(root) + path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return nameOf(names, stat.Uid)
}
