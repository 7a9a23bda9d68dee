//go:build linux

package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cpus reads which CPUs this process may run on (Cpus_allowed_list of proc_pid_status(5),
// which a cpuset cgroup and an affinity mask narrow; unlike sched_getaffinity(2) it needs
// no mask as long as the machine's), and sysfs for which of those CPUs share a core.
func cpus(root Root) CPUs {
	allowed := allowedCPUs(root.Read("/proc/self/status"))
	cores := coresOf(allowed, func(cpu int) string {
		return root.Read(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	})
	return CPUs{Allowed: allowed, Physical: len(cores), Cores: cores}
}

func allowedCPUs(status string) []int {
	for line := range strings.Lines(status) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return cpuList(list)
		}
	}
	return nil
}

// coresOf groups CPUs by core, in the order of their first CPUs: a core's list of siblings
// is read once. Where the list is not there a CPU counts as a core.
func coresOf(allowed []int, siblings func(cpu int) string) [][]int {
	var cores [][]int
	left := setOf(allowed)
	for _, cpu := range allowed {
		if !left[cpu] {
			continue
		}
		core := within(left, cpuList(siblings(cpu)))
		if !slices.Contains(core, cpu) {
			core = []int{cpu}
		}
		for _, sibling := range core {
			delete(left, sibling)
		}
		cores = append(cores, core)
	}
	return cores
}

// nodes reads /sys/devices/system/node: the CPUs of each NUMA node, as far as they are
// allowed, and its memory. Nodes with neither CPUs nor memory are left out: a GB200's GPUs
// bring dozens of those.
func nodes(root Root, allowed []int) []Node {
	const dir = "/sys/devices/system/node/"
	var found []Node
	set := setOf(allowed)
	for _, name := range root.Names(dir) {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") {
			continue
		}
		all := cpuList(root.Read(dir + name + "/cpulist"))
		memory := meminfo(root.Read(dir + name + "/meminfo"))
		if len(all) == 0 && memory["MemTotal"] == 0 {
			continue
		}
		found = append(found, Node{ID: id, CPUs: within(set, all), Memory: memory["MemTotal"], Free: memory["MemFree"]})
	}
	slices.SortFunc(found, func(a, b Node) int { return a.ID - b.ID })
	return found
}

func setOf(cpus []int) map[int]bool {
	set := make(map[int]bool, len(cpus))
	for _, cpu := range cpus {
		set[cpu] = true
	}
	return set
}

// within are the CPUs of a list that are in the set.
func within(set map[int]bool, list []int) []int {
	return slices.DeleteFunc(list, func(cpu int) bool { return !set[cpu] })
}

// meminfo reads /proc/meminfo, or a NUMA node's, whose lines begin with "Node 0", into
// bytes (proc_meminfo(5)).
func meminfo(text string) map[string]uint64 {
	sizes := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) > 2 && fields[0] == "Node" {
			fields = fields[2:]
		}
		if len(fields) == 3 && fields[2] == "kB" { // which are KiB
			kib, _ := strconv.ParseUint(fields[1], 10, 64)
			sizes[strings.TrimSuffix(fields[0], ":")] = kib << 10
		}
	}
	return sizes
}

// maxCPU bounds what a list may name: the kernel's own limit (NR_CPUS) is 8192.
const maxCPU = 8192

// cpuList reads the kernel's list format, such as 0-3,8.
func cpuList(text string) []int {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(strings.TrimSpace(first))
		to, err2 := strconv.Atoi(strings.TrimSpace(last))
		if err1 != nil || err2 != nil || from < 0 || to >= maxCPU {
			continue
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
