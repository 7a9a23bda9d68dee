//go:build linux

package facts

import (
	"reflect"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

const gib = 1 << 30

func TestTheTightestCgroupLimitCounts(t *testing.T) {
	memory, cpu, pids := uint64(64*gib), 6.5, uint64(4096)
	for _, test := range []struct {
		name  string
		files map[string]string
		want  Cgroup
	}{
		{"version 2: a slice above is tighter", map[string]string{
			"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.max": "max\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/memory.max":                 "68719476736\n",
			"sys/fs/cgroup/user.slice/memory.max":                                 "137438953472\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/cpu.max":                    "650000 100000\n",
			"sys/fs/cgroup/user.slice/cpu.max":                                    "max 100000\n",
			"sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/pids.max":   "4096\n",
		}, Cgroup{Version: 2, Memory: &memory, CPUs: &cpu, PIDs: &pids}},
		{"version 2 within a container", map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "68719476736\n", "sys/fs/cgroup/cpu.max": "650000 100000\n", "sys/fs/cgroup/pids.max": "4096\n",
		}, Cgroup{Version: 2, Memory: &memory, CPUs: &cpu, PIDs: &pids}},
		{"version 1 within a container that sees the machine's path", map[string]string{
			"proc/self/cgroup":                              "12:pids:/docker/0123\n5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n1:name=systemd:/docker/0123\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":    "68719476736\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":    "650000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/pids/pids.max":                   "4096\n",
			"sys/fs/cgroup/unified/memory.max":              "1\n",
			"sys/fs/cgroup/memory/docker/memory.unexpected": "1\n",
		}, Cgroup{Version: 1, Memory: &memory, CPUs: &cpu, PIDs: &pids}},
		{"version 1 without limits", map[string]string{
			"proc/self/cgroup":                           "5:cpu:/\n4:memory:/\n3:pids:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/pids/pids.max": "max\n",
		}, Cgroup{Version: 1}},
		{"nothing known", nil, Cgroup{}},
	} {
		if got := cgroup(hostfstest.Tree(t, test.files)); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestNodesTellTheirMemoryAndAllowedCPUs(t *testing.T) {
	const dir = "sys/devices/system/node/"
	root := hostfstest.Tree(t, map[string]string{
		dir + "online":        "0-2\n",
		dir + "node1/cpulist": "4-7\n",
		dir + "node1/meminfo": "Node 1 MemTotal:       1048576 kB\nNode 1 MemFree:         524288 kB\n",
		dir + "node0/cpulist": "0-3,8\n",
		dir + "node0/meminfo": "Node 0 MemTotal:       1048576 kB\nNode 0 HugePages_Total:     0\n",
		dir + "node2/cpulist": "\n",
		dir + "node2/meminfo": "Node 2 MemTotal:       0 kB\n",
	})
	got := nodes(root, []int{0, 1, 8})
	want := []Node{{ID: 0, CPUs: []int{0, 1, 8}, Memory: gib}, {ID: 1, CPUs: []int{}, Memory: gib, Free: gib / 2}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := nodes(hostfstest.Tree(t, nil), []int{0}); got != nil {
		t.Errorf("a kernel without NUMA: %+v", got)
	}
}

func TestVariablesThatAreSetToNothingCount(t *testing.T) {
	set := map[string]string{"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_ID": "7", "HOME": "/root"}
	got := Telling(set, nil)
	if !reflect.DeepEqual(got, map[string]string{"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_ID": "7"}) {
		t.Errorf("%v", got)
	}
}

func TestThisHostHasLimits(t *testing.T) {
	if l := limits(); l.NoFile.Soft == nil || *l.NoFile.Soft == 0 {
		t.Errorf("%+v", l)
	}
}

func BenchmarkGather(b *testing.B) {
	for b.Loop() {
		Gather("")
	}
}
