//go:build linux

package facts

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/plugins/gpu"
)

// firstPIDNamespace is the link of the machine's own pid namespace, whose number the
// kernel fixes (PROC_PID_INIT_INO).
const firstPIDNamespace = "pid:[4026531836]"

// ownPIDs reports whether process numbers are those of another pid namespace than the
// machine's (pid_namespaces(7)).
func ownPIDs(root Root) bool {
	namespace, err := os.Readlink(string(root) + "/proc/self/ns/pid")
	return err == nil && namespace != firstPIDNamespace
}

// Owners looks up whose the processes are: by the owner of /proc/PID (proc_pid(5)) and
// /etc/passwd, no directory service is asked. From another pid namespace the machine's
// numbers may mean other processes; there the program's name has to fit as well.
func Owners(root Root, gpus []gpu.GPU) map[int]string {
	own, names := ownPIDs(root), userNames(root.Read("/etc/passwd"))
	found := map[int]string{}
	for _, card := range gpus {
		for _, p := range card.Processes {
			info, err := os.Stat(fmt.Sprintf("%s/proc/%d", root, p.PID))
			if err != nil || own && !runs(root, p) {
				continue
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				found[p.PID] = nameOf(names, stat.Uid)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// runs reports whether the process of this number here is the program that the driver
// names: its path, or with newer drivers its command line.
func runs(root Root, p gpu.Process) bool {
	program, _, _ := strings.Cut(root.Read(fmt.Sprintf("/proc/%d/cmdline", p.PID)), "\x00")
	named, _, _ := strings.Cut(p.Name, " ")
	return program != "" && path.Base(program) == path.Base(named)
}

// userNames reads passwd(5).
func userNames(passwd string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.Lines(passwd) {
		fields := strings.Split(line, ":")
		if len(fields) < 3 {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if _, known := names[uint32(id)]; err == nil && !known {
			names[uint32(id)] = fields[0]
		}
	}
	return names
}

// nameOf is a user's name, or the number where the name is only known to a directory.
func nameOf(names map[uint32]string, uid uint32) string {
	if name := names[uid]; name != "" {
		return name
	}
	return strconv.FormatUint(uint64(uid), 10)
}
