package facts

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpus asks the scheduler for this process's affinity mask (sched_getaffinity(2)),
// which a cpuset cgroup narrows, and sysfs for which of those CPUs share a core.
func cpus(root Root) CPUs {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return CPUs{}
	}
	var allowed []int
	for cpu := 0; len(allowed) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			allowed = append(allowed, cpu)
		}
	}
	return CPUs{Allowed: allowed, Physical: physicalCores(allowed, func(cpu int) string {
		return root.read(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	})}
}

// physicalCores counts cores: CPUs with the same list of siblings are one. Where
// the list is not there each CPU counts as a core.
func physicalCores(allowed []int, siblings func(cpu int) string) int {
	cores := map[string]bool{}
	for _, cpu := range allowed {
		list := siblings(cpu)
		if list == "" {
			list = "cpu " + strconv.Itoa(cpu)
		}
		cores[list] = true
	}
	return len(cores)
}

// memoryTotal reads MemTotal of /proc/meminfo, which is in KiB (proc_meminfo(5)).
func memoryTotal(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
