package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// look is a look at a machine, as one prober tells it.
func look(change func(*gpu.Inventory)) *gpu.Inventory {
	found := gpus.H200().Expect(nil)
	found.GPUs = slices.Clone(found.GPUs)
	for i := range found.GPUs {
		found.GPUs[i].Processes = []gpu.Process{}
	}
	if change != nil {
		change(found)
	}
	return found
}

func TestValuesThatDifferAreJudged(t *testing.T) {
	for name, test := range map[string]struct {
		change              func(*gpu.Inventory)
		wrong, moved, alone string
	}{
		"nothing differs":        {change: nil},
		"a UUID":                 {change: func(g *gpu.Inventory) { g.GPUs[3].UUID = "GPU-0" }, wrong: "GPU 3: uuid: "},
		"an order":               {change: func(g *gpu.Inventory) { g.GPUs[0], g.GPUs[1] = g.GPUs[1], g.GPUs[0] }, wrong: "GPU 0: index: "},
		"a number of GPUs":       {change: func(g *gpu.Inventory) { g.GPUs = g.GPUs[:7] }, wrong: "8 GPUs by a, 7 by b"},
		"a driver":               {change: func(g *gpu.Inventory) { g.Driver = new("1.0") }, wrong: "driver: "},
		"a link":                 {change: func(g *gpu.Inventory) { g.Links[2][5] = "SYS" }, wrong: `links.2.5: "NV18" by a, "SYS" by b`},
		"an NVLink":              {change: func(g *gpu.Inventory) { g.GPUs[0].NVLinks = g.GPUs[0].NVLinks[:3] }, wrong: "GPU 0: nvlinks: "},
		"a mode":                 {change: func(g *gpu.Inventory) { g.GPUs[0].ComputeMode = new("prohibited") }, wrong: "GPU 0: compute_mode: "},
		"less than a MiB":        {change: func(g *gpu.Inventory) { g.GPUs[0].Memory.Total = new(*g.GPUs[0].Memory.Total - 4096) }},
		"a MiB of all":           {change: func(g *gpu.Inventory) { g.GPUs[0].Memory.Total = new(*g.GPUs[0].Memory.Total - 1<<20) }, wrong: "GPU 0: memory.total: "},
		"memory in use":          {change: func(g *gpu.Inventory) { g.GPUs[0].Memory.Used = new(uint64(300 << 20)) }, moved: "GPU 0: memory.used: "},
		"much memory in use":     {change: func(g *gpu.Inventory) { g.GPUs[0].Memory.Used = new(uint64(3 << 30)) }, wrong: "GPU 0: memory.used: "},
		"a link at rest":         {change: func(g *gpu.Inventory) { g.GPUs[0].PCIe.Generation = new(1) }, moved: "GPU 0: pcie.generation: "},
		"a process":              {change: func(g *gpu.Inventory) { g.GPUs[0].Processes = []gpu.Process{{PID: 7}} }, moved: "GPU 0: processes: "},
		"a value that one tells": {change: func(g *gpu.Inventory) { g.GPUs[1].Fabric = nil }, alone: "GPU 1: fabric: by a only"},
	} {
		t.Run(name, func(t *testing.T) {
			c := compare("a", "b", look(nil), look(test.change))
			for _, v := range []struct {
				what string
				got  []string
				want string
			}{{"wrong", c.wrong, test.wrong}, {"moved", c.moved, test.moved}, {"alone", c.alone, test.alone}} {
				if text := strings.Join(v.got, "\n"); (v.want == "") != (text == "") || !strings.Contains(text, v.want) {
					t.Errorf("%s: %q, want %q", v.what, text, v.want)
				}
			}
		})
	}
}

func TestInactiveNVLinksAreNotCounted(t *testing.T) {
	change := func(links []gpu.NVLink) func(*gpu.Inventory) {
		return func(g *gpu.Inventory) { g.GPUs[0].NVLinks = links }
	}
	c := compare("a", "b", look(change([]gpu.NVLink{})), look(change(make([]gpu.NVLink, 4))))
	if len(c.wrong) > 0 {
		t.Error(c.wrong)
	}
}

func TestEachMissingValueNeedsAReason(t *testing.T) {
	g := &gpu.Inventory{Source: "nvml", GPUs: []gpu.GPU{{Why: map[string]string{"fabric": "no switch"}}}, Links: [][]gpu.Link{}, Why: map[string]string{"cuda": "old"}}
	got := unexplained(g)
	for name, want := range map[string]bool{"nvml: driver": true, "nvml: cuda": false, "nvml: GPU 0: memory.total": true, "nvml: GPU 0: fabric": false} {
		if slices.Contains(got, name) != want {
			t.Errorf("%s among %v: %v", name, got, !want)
		}
	}
}

// table is the table of nvidia-smi 570 on one H200 and one GPU without MIG and modes.
const table = `index, uuid, pci.bus_id, name, memory.total [MiB], memory.used [MiB], compute_mode, mig.mode.current, driver_version
0, GPU-1, 00000000:0F:00.0, NVIDIA H200, 143771 MiB, 4 MiB, Exclusive_Process, Disabled, 570.86.15
1, GPU-2, 00010000:1B:00.0, "Odd, card", 15360 MiB, [N/A], Default, [N/A], 570.86.15
`

func TestTheTableIsReadAndCompared(t *testing.T) {
	rows, err := parseRows(table)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v: %v", err, rows)
	}
	if r := rows[0]; r.sysfs() != "0000:0f:00.0" || r.Total != 143771 || r.Mode != "exclusive_process" || r.partitioned() {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Name != "Odd, card" || r.Used != -1 || r.sysfs() != "10000:1b:00.0" {
		t.Errorf("%+v", r)
	}
	g := &gpu.Inventory{Driver: new("570.86.15"), GPUs: []gpu.GPU{
		{UUID: "GPU-1", PCI: "0000:0f:00.0", Name: "NVIDIA H200", ComputeMode: new("exclusive_process"), MIG: gpu.MIG{Enabled: new(false)},
			Memory: gpu.Memory{Total: new(uint64(143771<<20 + 700)), Used: new(uint64(4 << 20))}},
		{Index: 1, UUID: "GPU-2", PCI: "10000:1b:00.0", Name: "Odd, card", ComputeMode: new("default"), Memory: gpu.Memory{Total: new(uint64(15360 << 20))}},
	}}
	if c := compareRows("nvml", g, rows); len(c.wrong)+len(c.moved)+len(c.alone) > 0 || c.equal != 16 {
		t.Errorf("%+v", c)
	}
	g.GPUs[1].PCI = "0000:1b:00.0"
	if c := compareRows("nvml", g, rows); len(c.wrong) != 1 {
		t.Errorf("%+v", c)
	}
	for _, text := range []string{"", "No devices were found\n", strings.SplitAfter(table, "\n")[0], "NVIDIA-SMI has failed\n"} {
		if _, err := parseRows(text); err == nil {
			t.Errorf("%q is read as a table", text)
		}
	}
}

func TestProcessesAreRead(t *testing.T) {
	got := parseApps("1234, GPU-1, 514 MiB, python, train\n77, GPU-2, [N/A], [Not Found]\nNo running processes found\n")
	if len(got) != 2 || got[0] != (app{1234, "GPU-1", "python, train"}) || got[1].PID != 77 {
		t.Errorf("%+v", got)
	}
	if more := newApps(got[:1], got); len(more) != 1 || more[0].PID != 77 {
		t.Errorf("new: %+v", more)
	}
}
