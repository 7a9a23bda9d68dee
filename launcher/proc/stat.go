//go:build linux

package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ID names a process: its pid, and when it started in clock ticks since boot
// (field 22 of /proc/PID/stat), which a recycled pid does not share.
type ID struct {
	PID   int
	Start uint64
}

// Stat is the part of /proc/PID/stat that muster uses; see proc_pid_stat(5).
type Stat struct {
	ID
	Command string // as the kernel has it: at most 15 bytes
	State   byte   // R, S, D, Z, T, ...
	Parent  int
	Group   int
	Session int
}

// StatOf reads the process with this pid now.
func StatOf(pid int) (Stat, error) {
	var room [1024]byte
	text, err := Read(room[:0], pid, "stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(text)
}

// Lives reports whether a process has not ended yet.
func Lives(id ID) bool {
	s, err := StatOf(id.PID)
	return err == nil && s.ID == id && s.State != 'Z' && s.State != 'X'
}

// Parent names this process's parent.
func Parent() ID {
	s, err := StatOf(os.Getppid())
	if err != nil {
		return ID{} // no process has pid 0: signals to it go nowhere
	}
	return s.ID
}

// parseStat reads one line of the form "PID (COMMAND) STATE PPID ...", in which
// the command may hold spaces and parentheses.
func parseStat(text []byte) (Stat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("stat line %.80q has no command", text)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("stat line %.80q has no pid", text)
	}
	fields := strings.Fields(string(text[end+1:]))
	const wanted = 20 // up to starttime, counted from the state
	if len(fields) < wanted {
		return Stat{}, fmt.Errorf("stat line of %d is short", pid)
	}
	s := Stat{ID: ID{PID: pid}, Command: string(text[open+1 : end]), State: fields[0][0]}
	s.Parent, _ = strconv.Atoi(fields[1])
	s.Group, _ = strconv.Atoi(fields[2])
	s.Session, _ = strconv.Atoi(fields[3])
	s.Start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// All reads every process that /proc shows. Processes that end meanwhile are left out.
func All() []Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := StatOf(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// Below returns the processes of all that descend from root, zombies left out.
func Below(root int, all []Stat) []Stat {
	children := map[int][]Stat{}
	for _, s := range all {
		children[s.Parent] = append(children[s.Parent], s)
	}
	var found []Stat
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, s := range children[queue[0]] {
			if seen[s.PID] {
				continue
			}
			seen[s.PID] = true
			queue = append(queue, s.PID)
			if s.State != 'Z' && s.State != 'X' {
				found = append(found, s)
			}
		}
	}
	return found
}

// EnvironOf returns the value of a variable in the environment that a process
// was started with.
func EnvironOf(pid int, name string) (string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", false
	}
	prefix := []byte(name + "=")
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, prefix); ok {
			return string(value), true
		}
	}
	return "", false
}

// Owner returns the user id that owns a process, -1 if it is gone.
func Owner(pid int) int {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return -1
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}

// SharesNamespaces reports whether a process lives in the same pid and network namespace
// as this one.
func SharesNamespaces(pid int) bool {
	for _, kind := range []string{"pid", "net"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		other, otherErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil || otherErr != nil || own != other {
			return false
		}
	}
	return true
}

// Catches reports whether a process has a handler of its own for a signal (SigCgt
// in /proc/PID/status).
func Catches(pid int, signal int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	return caughtIn(text, signal)
}

func caughtIn(status []byte, signal int) bool {
	for line := range bytes.SplitSeq(status, []byte{'\n'}) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigCgt:")); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(string(mask)), 16, 64)
			return err == nil && bits&(1<<(signal-1)) != 0
		}
	}
	return false
}
