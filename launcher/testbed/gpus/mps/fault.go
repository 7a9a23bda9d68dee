//go:build linux

package mps

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// strike does what the scenario in force has for the first of these functions that it has
// something for: it waits, or ends the process by SIGSEGV. An "error" is returned.
func strike(folder string, functions ...string) *gpus.Fault {
	s, err := gpus.Read(folder)
	if err != nil {
		return nil // no scenario: nothing is wrong with it
	}
	i := slices.IndexFunc(s.Faults, func(f gpus.Fault) bool { return slices.Contains(functions, f.Function) })
	if i < 0 {
		return nil
	}
	f := s.Faults[i]
	switch f.Do {
	case "hang":
		time.Sleep(time.Duration(cmp.Or(f.Seconds, 60)) * time.Second)
		return nil
	case "crash":
		crash()
	}
	return &f
}

// crash ends the process by SIGSEGV without the trace that Go would write.
func crash() {
	var plain struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&plain)), 0, 8, 0, 0)
	_ = unix.Kill(unix.Getpid(), unix.SIGSEGV)
	time.Sleep(time.Minute) // the signal may come to another thread
}
