package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/gpu"
)

// recorded is a machine of two cards with two GPUs each, as MI250X are.
const recorded = "testdata/sys"

func TestThePluginAnswersMuster(t *testing.T) {
	program := filepath.Join(t.TempDir(), "muster-plugin-rocm")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sysfs, err := filepath.Abs(recorded)
	if err != nil {
		t.Fatal(err)
	}
	p := external.New(external.Program{Name: "amd", Path: program, Args: []string{"-sysfs", sysfs}}, external.Children{})
	defer p.Close()
	found, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.Source != "rocm" || *found.Driver != "6.8.5" || len(found.GPUs) != 4 || len(found.Notes) != 0 {
		t.Errorf("found %+v", found)
	}
	checkFirst(t, found.GPUs[0])
	if found.GPUs[1].PCI != "0000:32:00.0" || len(found.GPUs[1].Processes) != 0 || found.GPUs[1].Processes == nil {
		t.Errorf("the second: %+v", found.GPUs[1])
	}
	if islands := gpu.Islands(found.Links); len(islands) != 2 || islands[0][1] != 1 || islands[1][0] != 2 {
		t.Errorf("islands %v of %v", islands, found.Links)
	}
	if found.Links[0][2] != "SYS" {
		t.Errorf("between the pairs: %s", found.Links[0][2])
	}
	if v := found.Visibility; v.Variable != "HIP_VISIBLE_DEVICES" || v.Names != "index" {
		t.Errorf("visibility %+v", v)
	}
}

func checkFirst(t *testing.T, g gpu.GPU) {
	t.Helper()
	if g.Index != 0 || g.UUID != "GPU-9a7d2c41e05f1b36" || g.PCI != "0000:31:00.0" || g.Name != "AMD Instinct MI250X" || g.State != gpu.StateOK {
		t.Errorf("the first: %+v", g)
	}
	if *g.Memory.Total != 68702699520 || *g.Memory.Used != 34370715648 || *g.PCIe.Generation != 4 || *g.PCIe.WidthMax != 16 {
		t.Errorf("the first's numbers: %+v %+v", g.Memory, g.PCIe)
	}
	if len(g.Processes) != 1 || g.Processes[0].PID != 4711 || *g.Processes[0].Memory != 34359738368 {
		t.Errorf("the first's processes: %+v", g.Processes)
	}
	if g.Why["ecc.enabled"] == "" {
		t.Errorf("reasons: %v", g.Why)
	}
}

// changed returns a copy of the recorded machine in which files are replaced, or, with an
// empty text, not there.
func changed(t *testing.T, files map[string]string) folder {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(recorded)); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder(dir)
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	sysfs := changed(t, map[string]string{
		"class/drm/card2": "",
		"class/drm/card3/device/mem_info_vram_used": "none\n",
		"class/drm/card4/device/unique_id":          "",
		"class/drm/card0/device/vendor":             "0x1002\n",
		"class/kfd/kfd/proc":                        "",
		"module":                                    "",
	})
	found, err := rocm{sysfs}.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := external.Check(found); err != nil {
		t.Error(err)
	}
	if g := found.GPUs[1]; g.State != gpu.StateUnknown || g.Name != "AMD gfx90a" || g.Memory.Total != nil {
		t.Errorf("without its card: %+v", g)
	}
	if g := found.GPUs[2]; g.Memory.Used != nil || !strings.Contains(g.Why["memory.used"], "none") || g.Processes != nil {
		t.Errorf("without its use: %+v", g)
	}
	if g := found.GPUs[3]; g.UUID != "" || g.State != gpu.StateOK {
		t.Errorf("without its id: %+v", g)
	}
	if len(found.Notes) != 1 || found.Why["driver"] == "" || found.Links[1][2] != "" || found.Links[0][1] != "NV1" {
		t.Errorf("found %+v", found)
	}
}

func TestPartsOfGPUsAreRefused(t *testing.T) {
	for name, location := range map[string]string{"same": "12544", "marked": "268447744"} {
		sysfs := changed(t, map[string]string{
			"class/kfd/kfd/topology/nodes/3/properties": "location_id " + location + "\ndomain 0\n",
		})
		if _, err := (rocm{sysfs}).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "SPX") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestAMachineWithoutTheDriverIsAnErrorAndWithoutGPUsIsNot(t *testing.T) {
	if _, err := (rocm{folder(t.TempDir())}).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "modprobe amdgpu") {
		t.Errorf("error %v", err)
	}
	files := map[string]string{"class/drm": ""}
	for _, n := range "2345" {
		files["class/kfd/kfd/topology/nodes/"+string(n)] = ""
	}
	found, err := rocm{changed(t, files)}.Probe(t.Context())
	if err != nil || found.GPUs == nil || len(found.GPUs) != 0 || external.Check(found) != nil {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestNamesOfArchitectures(t *testing.T) {
	for version, name := range map[uint64]string{90402: "gfx942", 90010: "gfx90a", 110000: "gfx1100", 0: ""} {
		if got := gfxName(version); got != name {
			t.Errorf("%d is %s", version, got)
		}
	}
}
