package proc

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory policies of set_mempolicy(2).
const (
	mpolDefault   = 0
	mpolPreferred = 1
)

// bind binds the calling thread, which a process that it forks inherits, and returns how
// to undo that. The thread must be locked. A kernel or a container that allows no memory
// policy keeps nothing from running: child is told.
func bind(spec Spec, child *Child) (unbind func() error, err error) {
	nothing := func() error { return nil }
	if len(spec.CPUs) == 0 {
		return nothing, nil
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("bind to CPUs: %w", err)
	}
	for _, cpu := range spec.CPUs {
		set.Set(cpu)
	}
	if set.Count() != len(spec.CPUs) {
		return nil, fmt.Errorf("bind to CPUs %v: a number is too large or there twice", spec.CPUs)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("bind to CPUs %v: %w (do they still belong to this user's cpuset? bind = \"none\" leaves ranks unbound)", spec.CPUs, err)
	}
	if err := checkBound(set); err != nil {
		return nil, errors.Join(err, unix.SchedSetaffinity(0, &before))
	}
	if spec.Node != nil {
		child.MemoryPolicy = setMemoryPolicy(mpolPreferred, *spec.Node)
	}
	return func() error {
		var policy error
		if spec.Node != nil && child.MemoryPolicy == nil {
			policy = setMemoryPolicy(mpolDefault, -1)
		}
		return errors.Join(policy, unix.SchedSetaffinity(0, &before))
	}, nil
}

// checkBound compares: where a cpuset allows a part of a mask only, the kernel takes that
// part and says nothing.
func checkBound(want unix.CPUSet) error {
	var got unix.CPUSet
	if err := unix.SchedGetaffinity(0, &got); err != nil {
		return fmt.Errorf("bind to CPUs: %w", err)
	}
	if got != want {
		return fmt.Errorf("bind to CPUs: the kernel allows %d of %d of them: the cpuset has changed since the plan was made", got.Count(), want.Count())
	}
	return nil
}

// maxNode is how many bits a mask of NUMA nodes has: the kernel's own limit
// (CONFIG_NODES_SHIFT is at most 10).
const maxNode = 1024

// setMemoryPolicy sets where the calling thread, and what it forks, gets its memory from.
func setMemoryPolicy(mode, node int) error {
	var mask [maxNode / 64]uint64
	bits := uintptr(1) // the kernel counts one less
	if node >= 0 && node < maxNode {
		mask[node/64] = 1 << (node % 64)
		bits = maxNode + 1
	}
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(&mask)), bits); errno != 0 {
		return fmt.Errorf("prefer memory of NUMA node %d: %w", node, errno)
	}
	return nil
}
