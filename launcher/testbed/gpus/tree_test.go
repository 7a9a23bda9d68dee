package gpus_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// quickFolder is in memory where that is possible: a machine has thousands of files.
func quickFolder(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "gpus-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	return root
}

func TestEveryDeviceIsInSysfsWhereItsSlotIs(t *testing.T) {
	for _, name := range gpus.Names() {
		t.Run(name, func(t *testing.T) {
			s, root := gpus.Named(name), quickFolder(t)
			if err := gpus.Place(root, s.Tree()); err != nil {
				t.Fatal(err)
			}
			check := func(pci string, slot gpus.Slot) {
				t.Helper()
				// By the links, as a program finds it.
				at := filepath.Join(root, "sys/bus/pci/devices", pci)
				real, err := filepath.EvalSymlinks(at)
				if err != nil {
					t.Fatal(err)
				}
				if want := filepath.Join(root, "sys/devices", filepath.Join(slot.Path...), pci); real != want {
					t.Errorf("%s is at %s, should be at %s", pci, real, want)
				}
				if subsystem, err := filepath.EvalSymlinks(filepath.Join(at, "subsystem")); err != nil || subsystem != filepath.Join(root, "sys/bus/pci") {
					t.Errorf("%s: subsystem is %s (%v)", pci, subsystem, err)
				}
				if class := read(t, at, "class"); class != slot.Class {
					t.Errorf("%s: class %s, want %s", pci, class, slot.Class)
				}
				for _, node := range s.Nodes {
					if node.ID == slot.NUMA && read(t, at, "local_cpulist") != node.CPUs {
						t.Errorf("%s has the CPUs %s, its node %s", pci, read(t, at, "local_cpulist"), node.CPUs)
					}
				}
			}
			for _, g := range s.GPUs {
				check(g.PCI, g.Slot)
			}
			for _, nic := range s.NICs {
				check(nic.PCI, nic.Slot)
				at := filepath.Join(root, "sys/class/infiniband", nic.Name)
				if state := read(t, at, "ports/1/state"); state != nic.State {
					t.Errorf("%s is %s, want %s", nic.Name, state, nic.State)
				}
				if pci, err := filepath.EvalSymlinks(filepath.Join(at, "device")); err != nil || filepath.Base(pci) != nic.PCI {
					t.Errorf("%s is the device %s (%v), want %s", nic.Name, pci, err, nic.PCI)
				}
			}
			for _, node := range s.Nodes {
				if cpus := read(t, root, "sys/devices/system/node/node"+string(rune('0'+node.ID)), "cpulist"); cpus != node.CPUs {
					t.Errorf("node %d has %s, want %s", node.ID, cpus, node.CPUs)
				}
			}
		})
	}
}

func TestNodesHaveMemory(t *testing.T) {
	root := quickFolder(t)
	if err := gpus.Place(root, gpus.L40S().Tree()); err != nil {
		t.Fatal(err)
	}
	want := "Node 1 MemTotal:       268435456 kB\nNode 1 MemFree:        241591910 kB"
	if got := read(t, root, "sys/devices/system/node/node1/meminfo"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTreeIsTheSameForTheSameMachine(t *testing.T) {
	lost, whole := gpus.Lost().Tree(), gpus.L40S().Tree()
	if !slices.Equal(lost, whole) {
		t.Error("a lost GPU changes the files of the machine, or they come in another order each time")
	}
}

func TestNoTwoDevicesShareAPCIAddress(t *testing.T) {
	for _, name := range gpus.Names() {
		seen := map[string]string{}
		note := func(pci, what string) {
			if other := seen[pci]; other != "" && other != what {
				t.Errorf("%s: %s is %s and %s", name, pci, other, what)
			}
			seen[pci] = what
		}
		s := gpus.Named(name)
		add := func(pci, what string, slot gpus.Slot) {
			note(pci, what)
			for i := 1; i < len(slot.Path); i++ {
				note(slot.Path[i], "bridge below "+strings.Join(slot.Path[:i], "/"))
			}
		}
		for i, g := range s.GPUs {
			add(g.PCI, "GPU "+string(rune('0'+i)), g.Slot)
		}
		for _, nic := range s.NICs {
			add(nic.PCI, nic.Name, nic.Slot)
		}
		for _, nvswitch := range s.Switches {
			add(nvswitch.PCI, "NVSwitch "+nvswitch.PCI, nvswitch.Slot)
		}
	}
}

// The tables that people posted of these machines, cell by cell.
func TestWaysAreThoseOfTheRealMachines(t *testing.T) {
	for _, test := range []struct {
		s    *gpus.Scenario
		want []string
	}{
		{gpus.DGXA100(), []string{"X NV12 NV12 NV12 NV12 NV12 NV12 NV12"}},
		{gpus.A800(), []string{"X NV8 NV8 NV8 NV8 NV8 NV8 NV8"}},
		{gpus.DGXH100(), []string{"X NV18 NV18 NV18 NV18 NV18 NV18 NV18"}},
		{gpus.DGX1(), []string{
			"X NV1 NV2 NV1 SYS SYS SYS NV2", "NV1 X NV1 NV2 SYS SYS NV2 SYS", "NV2 NV1 X NV2 SYS NV1 SYS SYS", "NV1 NV2 NV2 X NV1 SYS SYS SYS",
			"SYS SYS SYS NV1 X NV2 NV2 NV1", "SYS SYS NV1 SYS NV2 X NV1 NV2", "SYS NV2 SYS SYS NV2 NV1 X NV1", "NV2 SYS SYS SYS NV1 NV2 NV1 X",
		}},
		{gpus.TwoIslands(), []string{"X NV4 NV4 NV4 SYS SYS SYS SYS"}},
		{gpus.BridgedPairs(), []string{"X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4"}},
		{gpus.BridgedA6000(), []string{"X NV4 NODE", "NV4 X NODE", "NODE NODE X"}},
		{gpus.L40S(), []string{"X PIX SYS SYS"}},
		{gpus.Mixed(), []string{"X PHB", "PHB X"}},
		{gpus.MIG(), []string{"X PXB", "PXB X"}}, // MIG mode hides the NVLinks
	} {
		links := test.s.Expect(nil).Links
		for i, want := range test.want {
			var row []string
			for _, link := range links[i] {
				row = append(row, string(link))
			}
			if got := strings.Join(row, " "); got != want {
				t.Errorf("%s: GPU %d has %s, want %s", test.s.Name, i, got, want)
			}
		}
	}
	a100 := gpus.DGXA100()
	for n, want := range map[int]string{0: "PXB", 2: "SYS", 8: "SYS"} {
		if got := gpus.Way(a100.GPUs[0].Slot, a100.NICs[n].Slot); string(got) != want {
			t.Errorf("GPU 0 and %s of a DGX A100: %s, want %s", a100.NICs[n].Name, got, want)
		}
	}
	h100 := gpus.DGXH100()
	for n, want := range map[int]string{0: "PIX", 1: "NODE", 4: "SYS"} {
		if got := gpus.Way(h100.GPUs[0].Slot, h100.NICs[n].Slot); string(got) != want {
			t.Errorf("GPU 0 and %s of a DGX H100: %s, want %s", h100.NICs[n].Name, got, want)
		}
	}
}
