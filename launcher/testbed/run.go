//go:build linux

package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread that is in the network, mount, uts and ipc namespaces of
// the host, for example to dial from there. Processes that f starts are in its pid
// namespace too, but must end before f does. What f hands to other goroutines does
// not run there: dial addresses, not names.
func (h *Host) Do(f func() error) error {
	init := h.current()
	if init == nil {
		return fmt.Errorf("testbed: %s is off", h.Name)
	}
	var err error
	onThread(func() {
		if err = enter(init.pid()); err != nil {
			err = fmt.Errorf("testbed: enter %s: %w", h.Name, err)
			return
		}
		err = f()
	})
	return err
}

// enter moves the calling thread into the namespaces of a process.
func enter(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A thread that shares its root and working folder with others may not change
	// its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(fd, hostNamespaces)
}

// Run runs a command on the host as root, with the environment of a login, in
// root's home. When ctx ends, the command's process group is killed.
func (h *Host) Run(ctx context.Context, argv ...string) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	err = h.Do(func() error {
		// env finds the program by the host's PATH.
		cmd := exec.CommandContext(ctx, "/usr/bin/env", append(h.clock(), argv...)...)
		cmd.Env = rootEnvironment()
		cmd.Dir = "/root"
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 5 * time.Second
		return cmd.Run()
	})
	if err != nil {
		err = fmt.Errorf("testbed: %s on %s: %w: %s", strings.Join(argv, " "), h.Name, err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), errs.Bytes(), err
}

func rootEnvironment() []string {
	return []string{"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8", "PATH=" + rootPath}
}

// clock is what enters the host's time namespace: a process with several threads,
// such as this one, cannot.
func (h *Host) clock() []string {
	if h.opts.ClockOffset == 0 {
		return nil
	}
	return []string{"nsenter", "--time=/proc/1/ns/time_for_children"}
}
