//go:build linux

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func allowed(t *testing.T) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// bound starts a process that tells on which CPUs it may run, and under which policy its
// memory is.
func bound(t *testing.T, cpus []int, node *int) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	child, err := theReaper().Start(Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "cat /proc/$$/status /proc/$$/numa_maps >" + out}, Env: os.Environ(), CPUs: cpus, Node: node,
	})
	if err != nil {
		t.Fatal(err)
	}
	if child.MemoryPolicy != nil {
		t.Logf("no memory policy here: %v", child.MemoryPolicy)
	}
	wait(t, child)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAProcessIsBoundAndTheNextOneIsNot(t *testing.T) {
	all := allowed(t)
	last := all[len(all)-1]
	node := 0
	status := bound(t, []int{last}, &node)
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", last); !strings.Contains(status, want) {
		t.Errorf("status lacks %q:\n%s", want, status)
	}
	if _, err := os.Stat("/proc/self/numa_maps"); err == nil && !strings.Contains(status, " prefer:0") && !strings.Contains(status, " prefer (many):0") {
		t.Errorf("memory is not preferred of node 0:\n%.400s", status)
	}
	status = bound(t, nil, nil)
	if strings.Contains(status, fmt.Sprintf("Cpus_allowed_list:\t%d\n", last)) && len(all) > 1 || strings.Contains(status, " prefer") {
		t.Errorf("a process that was not to be bound is:\n%s", status)
	}
}

func TestABindingThatTheKernelRefusesStartsNothing(t *testing.T) {
	all := allowed(t)
	for _, cpus := range [][]int{{1020}, {all[0], all[0]}, slices.Concat(all, []int{1021}), {maxCPU}, {-1}} {
		_, err := theReaper().Start(Spec{Path: "/bin/true", Argv: []string{"true"}, CPUs: cpus})
		if err == nil || !strings.Contains(err.Error(), "bind to CPUs") {
			t.Errorf("bound to %v: %v", cpus, err)
		}
	}
}

// unix.CPUSet holds 1024 CPUs, and a kernel with more does not fill it.
func TestAMaskHoldsMoreThan1024CPUs(t *testing.T) {
	set, err := cpuSetOf([]int{0, 1023, 1024, 4095, maxCPU - 1})
	if err != nil || set.count() != 5 {
		t.Errorf("%d CPUs, %v", set.count(), err)
	}
	now, err := affinity()
	if want := allowed(t); err != nil || now.count() != len(want) {
		t.Errorf("this thread has %d CPUs, want %d (%v)", now.count(), len(want), err)
	}
}
