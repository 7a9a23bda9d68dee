//go:build linux

package proc

import (
	"errors"
	"fmt"
	"math/bits"
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
	before, err := affinity()
	if err != nil {
		return nil, fmt.Errorf("bind to CPUs: %w", err)
	}
	set, err := cpuSetOf(spec.CPUs)
	if err != nil {
		return nil, fmt.Errorf("bind to CPUs %v: %w", spec.CPUs, err)
	}
	if err := set.apply(); err != nil {
		return nil, fmt.Errorf("bind to CPUs %v: %w (do they still belong to this user's cpuset? bind = \"none\" leaves ranks unbound)", spec.CPUs, err)
	}
	if err := checkBound(set); err != nil {
		return nil, errors.Join(err, before.apply())
	}
	if spec.Node != nil {
		child.MemoryPolicy = setMemoryPolicy(mpolPreferred, *spec.Node)
	}
	return func() error {
		var policy error
		if spec.Node != nil && child.MemoryPolicy == nil {
			policy = setMemoryPolicy(mpolDefault, -1)
		}
		return errors.Join(policy, before.apply())
	}, nil
}

// maxCPU is how many CPUs a kernel may have at most (NR_CPUS). unix.CPUSet holds 1024, and a
// kernel with more refuses to fill it.
const maxCPU = 8192

// cpuSet is a mask as sched_setaffinity(2) takes it.
type cpuSet [maxCPU / bits.UintSize]uint

func cpuSetOf(cpus []int) (set cpuSet, err error) {
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= maxCPU {
			return set, fmt.Errorf("there is no CPU %d", cpu)
		}
		set[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize)
	}
	if set.count() != len(cpus) {
		return set, errors.New("one is there twice")
	}
	return set, nil
}

func (s *cpuSet) count() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount(word)
	}
	return n
}

// affinity is the mask of the calling thread.
func affinity() (set cpuSet, err error) {
	_, _, errno := unix.Syscall(unix.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return set, errno
	}
	return set, nil
}

// apply gives the mask to the calling thread.
func (s *cpuSet) apply() error {
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)))
	if errno != 0 {
		return errno
	}
	return nil
}

// checkBound compares: where a cpuset allows a part of a mask only, the kernel takes that
// part and says nothing.
func checkBound(want cpuSet) error {
	got, err := affinity()
	if err != nil {
		return fmt.Errorf("bind to CPUs: %w", err)
	}
	if got != want {
		return fmt.Errorf("bind to CPUs: the kernel allows %d of %d of them: the cpuset has changed since the plan was made", got.count(), want.count())
	}
	return nil
}

// maxNode is how many bits a mask of NUMA nodes has: the kernel's own limit
// (CONFIG_NODES_SHIFT is at most 10).
const maxNode = 1024

// setMemoryPolicy sets where the calling thread, and what it forks, gets its memory from.
func setMemoryPolicy(mode, node int) error {
	var mask [maxNode / 64]uint64
	size := uintptr(1) // in bits; the kernel counts one less
	if node >= 0 && node < maxNode {
		mask[node/64] = 1 << (node % 64)
		size = maxNode + 1
	}
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(&mask)), size)
	if errno != 0 {
		return fmt.Errorf("prefer memory of NUMA node %d: %w", node, errno)
	}
	return nil
}
