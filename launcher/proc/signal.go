//go:build linux

package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to a process if it is still the one that id names. A
// process that is gone is no error.
func Signal(id ID, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return signalByPID(id, signal) // a kernel before 5.3, or a sandbox without pidfd
	}
	if err != nil {
		return fmt.Errorf("signal %d to process %d: %w", signal, id.PID, err)
	}
	defer unix.Close(fd)
	// Only now is the pid held: the fd stays with this process whatever follows.
	if s, err := StatOf(id.PID); err != nil || s.ID != id {
		return nil
	}
	err = unix.PidfdSendSignal(fd, signal, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", signal, id.PID, err)
	}
	return nil
}

func signalByPID(id ID, signal unix.Signal) error {
	if s, err := StatOf(id.PID); err != nil || s.ID != id {
		return nil
	}
	if err := unix.Kill(id.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", signal, id.PID, err)
	}
	return nil
}
