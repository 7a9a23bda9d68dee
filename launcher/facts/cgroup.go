//go:build linux

package facts

import (
	"cmp"
	"path"
	"strconv"
	"strings"
)

// cgroup reads /proc/self/cgroup (cgroups(7)) for where this process is, and there and
// in the groups above the limits; the tightest counts. Hosts may have controllers in
// both versions.
func cgroup(root Root) Cgroup {
	groups := parseGroups(root.Read("/proc/self/cgroup"))
	var c Cgroup
	c.Version = groups.version()
	for _, dir := range groups.dirs("memory") {
		c.Memory = tightest(c.Memory, bytesLimit(cmp.Or(root.Read(dir+"/memory.max"), root.Read(dir+"/memory.limit_in_bytes"))))
	}
	for _, dir := range groups.dirs("cpu") {
		c.CPUs = tightest(c.CPUs, cpuLimit(cmp.Or(root.Read(dir+"/cpu.max"),
			root.Read(dir+"/cpu.cfs_quota_us")+" "+root.Read(dir+"/cpu.cfs_period_us"))))
	}
	for _, dir := range groups.dirs("pids") {
		c.PIDs = tightest(c.PIDs, bytesLimit(root.Read(dir+"/pids.max")))
	}
	return c
}

// groups is where a process is: in version 2, and by controller in version 1.
type groups struct {
	unified string // "" where there is no version 2
	v1      map[string]group
}

type group struct{ mount, path string }

// cgroupRoot is where every distribution mounts the hierarchies.
const cgroupRoot = "/sys/fs/cgroup"

// parseGroups reads lines such as 0::/user.slice (version 2) and
// 4:cpu,cpuacct:/docker/0123 (version 1).
func parseGroups(text string) groups {
	g := groups{v1: map[string]group{}}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if fields[0] == "0" && fields[1] == "" {
			g.unified = fields[2]
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			g.v1[controller] = group{mount: fields[1], path: fields[2]}
		}
	}
	return g
}

func (g groups) version() int {
	_, v1 := g.v1["memory"]
	switch {
	case v1:
		return 1
	case g.unified != "":
		return 2
	}
	return 0
}

// dirs are the group's folder and those above it. Within a container the path may be the
// machine's, of which only the container's end is mounted: folders that are not there have
// no limits, and the mount point itself is the container's group.
func (g groups) dirs(controller string) []string {
	base, at := cgroupRoot, g.unified
	if v1, ok := g.v1[controller]; ok {
		base, at = cgroupRoot+"/"+v1.mount, v1.path
	}
	if at == "" {
		return nil
	}
	var dirs []string
	for at = path.Clean("/" + at); ; at = path.Dir(at) {
		dirs = append(dirs, path.Join(base, at))
		if at == "/" {
			return dirs
		}
	}
}

// unlimited is what version 1 shows, or nearly (rounded to pages), where there is no limit.
const unlimited = 1 << 62

// bytesLimit reads a number; nil for "max", none at all or as good as none.
func bytesLimit(text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= unlimited {
		return nil
	}
	return &n
}

// cpuLimit reads quota and period in microseconds; the quota is "max" or -1 where there
// is none.
func cpuLimit(text string) *float64 {
	quota, period, _ := strings.Cut(text, " ")
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return nil
	}
	cpus := q / p
	return &cpus
}

func tightest[T cmp.Ordered](a, b *T) *T {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}
