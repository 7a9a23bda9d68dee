//go:build linux

package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a process of a host.
type Process struct {
	// PID is its number on the host, MachinePID that on the machine.
	PID, MachinePID int
	// Name is the kernel's name for it, at most 15 bytes.
	Name string
	// Args is its command line; empty for a zombie.
	Args []string
	// State is the kernel's letter: R, S, D, T, Z, ...
	State string
}

// String shows the process as ps would.
func (p Process) String() string {
	if len(p.Args) == 0 {
		return fmt.Sprintf("%d %s [%s]", p.PID, p.State, p.Name)
	}
	return fmt.Sprintf("%d %s %s", p.PID, p.State, strings.Join(p.Args, " "))
}

// Processes returns all processes of the host, init and sshd included.
func (h *Host) Processes() ([]Process, error) {
	init := h.current()
	if init == nil {
		return nil, nil
	}
	return processesIn(init.pid())
}

// Leftovers is Processes without init, sshd and sshd's sessions.
func (h *Host) Leftovers() ([]Process, error) {
	all, err := h.Processes()
	var rest []Process
	for _, p := range all {
		if p.PID != 1 && p.Name != "sshd" && p.Name != "sshd-session" && p.Name != "sshd-auth" {
			rest = append(rest, p)
		}
	}
	return rest, err
}

// Kill sends a signal to the process which has that number on the host.
func (h *Host) Kill(pid int, sig syscall.Signal) error {
	all, err := h.Processes()
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.PID == pid {
			return h.signal(p, sig)
		}
	}
	return fmt.Errorf("testbed: no process %d on %s", pid, h.Name)
}

// signal makes sure that the number was not given to another process meanwhile.
func (h *Host) signal(p Process, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.MachinePID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := readProcess(p.MachinePID)
	if err != nil || now.PID != p.PID {
		return fmt.Errorf("testbed: process %d on %s has ended", p.PID, h.Name)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// processesIn lists the processes in the pid namespace of an init.
func processesIn(init int) ([]Process, error) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return nil, nil // the host's init has just died
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, link := range links {
		if s, err := os.Readlink(link); err != nil || s != space {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if p, err := readProcess(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// readProcess reads a process by its number on the machine.
func readProcess(pid int) (Process, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Process{}, err
	}
	p := Process{MachinePID: pid}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		words := strings.Fields(value)
		switch {
		case len(words) == 0:
		case key == "Name":
			p.Name = strings.TrimSpace(value)
		case key == "State":
			p.State = words[0]
		case key == "NSpid": // the innermost namespace comes last
			p.PID, _ = strconv.Atoi(words[len(words)-1])
		}
	}
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if text := strings.TrimRight(string(cmdline), "\x00"); text != "" {
		p.Args = strings.Split(text, "\x00")
	}
	return p, nil
}
