//go:build linux

package facts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

type machine struct {
	gpus *gpu.Inventory
	err  error
}

func (m machine) Probe(context.Context) (*gpu.Inventory, error) { return m.gpus, m.err }

// A card's index says nothing of the socket that it sits on.
func TestTheNodeOfAGPUComesFromItsSlotAndNotItsIndex(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"sys/bus/pci/devices/0000:81:00.0/numa_node":     "1\n",
		"sys/bus/pci/devices/0000:81:00.0/local_cpulist": "8-15,24-31\n",
		"sys/bus/pci/devices/0000:01:00.0/numa_node":     "-1\n",
		"sys/bus/pci/devices/0000:01:00.0/local_cpulist": "0-31\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := machine{gpus: &gpu.Inventory{
		GPUs:  []gpu.GPU{{Index: 0, PCI: "0000:81:00.0"}, {Index: 1, PCI: "0000:01:00.0"}, {Index: 2, PCI: "0000:99:00.0"}},
		Links: [][]gpu.Link{{"X", "NV4", "SYS"}, {"NV4", "X", "SYS"}, {"SYS", "SYS", "X"}},
	}}
	d := LookAtDevices(t.Context(), Root(root), m, []int{8, 9, 30})
	if d.Near[0].NUMA == nil || *d.Near[0].NUMA != 1 || !slices.Equal(d.Near[0].CPUs, []int{8, 9, 30}) {
		t.Errorf("GPU 0 is near %+v", d.Near[0])
	}
	if d.Near[1].NUMA != nil || d.Near[2].NUMA != nil || d.Near[2].CPUs != nil {
		t.Errorf("nodes that nobody tells: %+v, %+v", d.Near[1], d.Near[2])
	}
	if len(d.Islands) == 0 || !slices.Equal(d.Islands[0], []int{0, 1}) {
		t.Errorf("islands %v", d.Islands)
	}
}

func TestAHostWithoutGPUsSaysWhy(t *testing.T) {
	d := LookAtDevices(t.Context(), "", machine{err: errors.New("nvidia-smi is not installed")}, nil)
	if d.None != "nvidia-smi is not installed" || d.Inventory != nil {
		t.Errorf("%+v", d)
	}
}
