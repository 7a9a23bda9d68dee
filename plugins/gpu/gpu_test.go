package gpu

import (
	"slices"
	"testing"
)

func TestPCIAddressesAreWrittenAsSysfsDoes(t *testing.T) {
	for address, want := range map[string]string{
		"00000000:0F:00.0": "0000:0f:00.0",
		"0000:0B:00.0":     "0000:0b:00.0",
		"0f:00.0":          "0000:0f:00.0",
		"0f:00":            "0000:0f:00.0",
		"000:BA:00.0":      "0000:ba:00.0",
		"00000001:00:00.0": "0001:00:00.0", // virtual machines of some clouds
		"00010000:01:00.0": "10000:01:00.0",
		"":                 "",
		"GPU-0":            "",
		"0000:0f:40.0":     "",
		"0000:0f:00.8":     "",
		"N/A":              "",
	} {
		if got, is := SysfsPCI(address); got != want || is != (want != "") {
			t.Errorf("SysfsPCI(%q) = %q, %v", address, got, is)
		}
	}
}

func TestEachNilValueIsNamedAndExplainedOnce(t *testing.T) {
	g := GPU{Processes: []Process{}, Recovery: new("none"), Memory: Memory{Used: new(uint64(0))}}
	names := g.Unknown()
	for _, want := range []string{"memory.total", "mig.enabled", "mig.instances", "ecc.sram_volatile_uncorrected", "throttled", "fabric"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is nil and not among %v", want, names)
		}
	}
	for _, not := range []string{"memory.used", "processes", "recovery", "why", "name"} {
		if slices.Contains(names, not) {
			t.Errorf("%s is named as nil", not)
		}
	}
	g.Why = map[string]string{"fabric": "no NVSwitch"}
	g.Explain("lost")
	if g.Why["fabric"] != "no NVSwitch" || g.Why["memory.total"] != "lost" || len(g.Why) != len(names) {
		t.Errorf("reasons: %v", g.Why)
	}
}

func TestNotesOfTheMachineAreNoValues(t *testing.T) {
	all := Inventory{GPUs: []GPU{}, Links: [][]Link{}}
	if got := all.Unknown(); !slices.Equal(got, []string{"driver", "cuda"}) {
		t.Errorf("Unknown = %v", got)
	}
}
