package view

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/plugins"
)

func pointer[T any](v T) *T { return &v }

// twoIslands is a machine of four GPUs, two by two, one of them lost.
func twoIslands() Probed {
	g := func(i int, pci string) plugins.GPU {
		return plugins.GPU{Index: i, UUID: "GPU-" + pci, PCI: pci, Name: "A6000", State: plugins.StateOK,
			Memory: plugins.Memory{Total: pointer(uint64(48 << 30)), Used: pointer(uint64(0))}}
	}
	d := &facts.Devices{
		GPUs: &plugins.GPUs{Source: "nvidia-smi", Driver: pointer("550.54"), GPUs: []plugins.GPU{g(0, "a"), g(1, "b"), g(2, "c"), g(3, "d")},
			Links: [][]plugins.Link{{"X", "NV4", "SYS", "SYS"}, {"NV4", "X", "SYS", "SYS"}, {"SYS", "SYS", "X", "NV4"}, {"SYS", "SYS", "NV4", "X"}}},
		Near: make([]facts.Near, 4), Islands: [][]int{{0, 1}, {2, 3}},
	}
	d.GPUs.GPUs[1].State = plugins.StateLost
	d.GPUs.GPUs[2].Memory.Used = pointer(uint64(15 << 30))
	d.GPUs.GPUs[3].NVLinks = []plugins.NVLink{{Link: 0, Active: true}, {Link: 1}}
	return Probed{Name: "gpu1", Address: "10.0.0.1", Facts: facts.Host{Hostname: "gpu1", Devices: d}}
}

func TestAProbeSaysInWordsWhatStandsOut(t *testing.T) {
	var out bytes.Buffer
	Probe(&Screen{out: stream{w: &out}}, []Probed{twoIslands()})
	for _, want := range []string{
		"2 islands of NVLink, joined by slower ways: GPUs 0-1; GPUs 2-3",
		"GPU 1 (b) is lost",
		"GPU 2 has 15.0 GiB in use by nobody who shows",
		"GPU 3 has 1 of 2 NVLinks down",
		"GPU2  SYS   SYS   X     NV4",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestAProbesJSONHoldsWhatScriptsRead(t *testing.T) {
	var out bytes.Buffer
	if err := ProbeJSON(&out, []Probed{twoIslands(), {Name: "cpu1", Facts: facts.Host{Devices: &facts.Devices{None: "nvidia-smi is not installed"}}}}); err != nil {
		t.Fatal(err)
	}
	var v struct {
		Version int
		Hosts   []struct {
			Name, Address string
			HostID        string `json:"host_id"`
			GPUs          []map[string]any
			Links         [][]string
			Islands       [][]int
			NICs          []any
			None          string `json:"gpu_none"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != 1 || len(v.Hosts) != 2 || len(v.Hosts[0].GPUs) != 4 || v.Hosts[0].Links[0][1] != "NV4" || len(v.Hosts[0].Islands) != 2 {
		t.Errorf("%s", out.String())
	}
	for _, name := range []string{"index", "uuid", "pci", "name", "memory_total", "memory_used", "numa", "processes"} {
		if _, ok := v.Hosts[0].GPUs[0][name]; !ok {
			t.Errorf("no %s of a GPU", name)
		}
	}
	if v.Hosts[1].None == "" || v.Hosts[1].GPUs == nil {
		t.Errorf("a host without GPUs: %+v", v.Hosts[1])
	}
}
