package main

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// affinity is where this process may run, as a list such as "0-3,8".
func affinity() string {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return ""
	}
	var parts []string
	for cpu, most := 0, 8*int(unsafe.Sizeof(set)); cpu < most; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		first := cpu
		for cpu+1 < most && set.IsSet(cpu+1) {
			cpu++
		}
		if first == cpu {
			parts = append(parts, fmt.Sprint(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, cpu))
		}
	}
	return strings.Join(parts, ",")
}

// policy is where memory of this process comes from.
type policy struct {
	Mode  string `json:"mode"`
	Nodes []int  `json:"nodes"`
}

// modes are those of set_mempolicy(2), by number.
var modes = []string{"default", "preferred", "bind", "interleave", "local", "preferred_many", "weighted_interleave"}

func mempolicy() *policy {
	var mode int32
	var nodes [1024 / 64]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&nodes)), 1024, 0, 0, 0)
	if errno != 0 {
		return nil
	}
	p := &policy{Mode: fmt.Sprint(mode), Nodes: []int{}}
	if n := int(mode) & 0xff; n < len(modes) { // above are flags
		p.Mode = modes[n]
	}
	for node := range 1024 {
		if nodes[node/64]>>(node%64)&1 == 1 {
			p.Nodes = append(p.Nodes, node)
		}
	}
	return p
}
