package allocator

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func at[T any](v T, line int) *Of[T] { return &Of[T]{v, fmt.Sprintf("job.hcl:%d", line)} }

func usual() *Settings {
	return &Settings{
		MaxSplitSize:               at(uint64(128*MiB), 2),
		GarbageCollectionThreshold: at(0.8, 3),
	}
}

// TestVars: what is written for each version, and what is said of the rest.
func TestVars(t *testing.T) {
	const on = "expandable_segments:True"
	for name, test := range map[string]struct {
		settings     *Settings
		torch        string
		below, above string
		want         string // NAME=VALUE ...
		says         string // a part of the findings
	}{
		"no block":              {nil, "2.4.0", on, "", "", ""},
		"empty block":           {&Settings{}, "2.4.0", on, "", "", ""},
		"old name up to 2.9":    {usual(), "2.9.1", "", "", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8", ""},
		"both names since 2.10": {usual(), "2.10.0", "", "", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8 GENERAL=max_split_size_mb:128,garbage_collection_threshold:0.8", ""},
		"both where not known":  {usual(), "", "", "", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8 GENERAL=max_split_size_mb:128,garbage_collection_threshold:0.8", "is not known"},
		"AMD's name too":        {&Settings{ExpandableSegments: at(true, 2)}, "2.8.0+rocm6.4", "", "", "CUDA=expandable_segments:True HIP=expandable_segments:True", ""},
		"unknown to an old one": {&Settings{ExpandableSegments: at(true, 2)}, "2.0.1", "", "", "", "expandable_segments = true (job.hcl:2) is left out: torch 2.0 does not know expandable_segments, which is there since torch 2.1"},
		"the rest is written":   {&Settings{ExpandableSegments: at(true, 2), RoundupPower2Divisions: at([]Division{{0, 4}}, 3)}, "1.13.1", "", "", "CUDA=roundup_power2_divisions:4", "is left out"},
		"a list is new in 2.0":  {&Settings{RoundupPower2Divisions: at([]Division{{256 * MiB, 1}, {0, 8}}, 2)}, "1.13.1", "", "", "", "since 2.0"},
		"a list":                {&Settings{RoundupPower2Divisions: at([]Division{{256 * MiB, 1}, {0, 8}}, 2)}, "2.0.0", "", "", "CUDA=roundup_power2_divisions:[256:1,>:8]", ""},
		"20 MiB before 2.10":    {&Settings{MaxSplitSize: at(uint64(20*MiB), 2)}, "2.9.0", "", "", "", "at least 21"},
		"fraction":              {&Settings{MemoryFraction: at(0.45, 2)}, "2.10.0", "", "", "CUDA=per_process_memory_fraction:0.45 GENERAL=per_process_memory_fraction:0.45", ""},
		"fraction before 2.10":  {&Settings{MemoryFraction: at(0.45, 2)}, "2.9.1", on, "", "", "call torch.cuda.set_per_process_memory_fraction(0.45)"},
		"fraction of a nightly": {&Settings{MemoryFraction: at(0.45, 2)}, "2.10.0a0", "", "", "", "is left out"},
		"fraction, not known":   {&Settings{MemoryFraction: at(0.45, 2)}, "", "", "", "", "not known, and before torch 2.10"},
		"with the host's keys":  {usual(), "2.1.0", "roundup_power2_divisions:4", "", "CUDA=roundup_power2_divisions:4,max_split_size_mb:128,garbage_collection_threshold:0.8", ""},
		"over the host's value": {usual(), "2.1.0", "max_split_size_mb:64", "", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8", "is in force, and not max_split_size_mb:64 of the host"},
		"under env's value":     {usual(), "2.1.0", "", "max_split_size_mb:64", "CUDA=max_split_size_mb:64,garbage_collection_threshold:0.8", `max_split_size = "128MiB" (job.hcl:2) is not in force`},
		"same value in env":     {usual(), "2.1.0", "", "max_split_size_mb:128", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8", ""},
		"env's own keys stay":   {usual(), "2.1.0", "", "foo:1", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8,foo:1", `torch stops at the setting "foo"`},
		"no list in env":        {usual(), "2.1.0", "", "max_split_size_mb", "", "cannot be added to it"},
		"no list on the host":   {usual(), "2.1.0", "max_split_size_mb=64", "", "CUDA=max_split_size_mb:128,garbage_collection_threshold:0.8", "put aside"},
		"a pair over sources":   {usual(), "2.1.0", on, "", "CUDA=expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8", "max_split_size_mb has no effect"},
	} {
		vars, found := test.settings.Vars(test.torch, given(test.below, "the host"), given(test.above, "job.hcl:9"))
		if got := shown(vars); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
		text := ""
		for _, f := range found {
			text += f.Message + "\n"
		}
		if !strings.Contains(text, test.says) || test.says == "" && text != "" {
			t.Errorf("%s says %q, want %q", name, text, test.says)
		}
	}
}

func given(text, source string) []Given {
	if text == "" {
		return nil
	}
	return []Given{{CUDAName, text, source}}
}

func shown(vars []Var) string {
	var parts []string
	for _, v := range vars {
		short := map[string]string{CUDAName: "CUDA", HIPName: "HIP", GeneralName: "GENERAL"}[v.Name]
		parts = append(parts, short+"="+v.Value)
	}
	return strings.Join(parts, " ")
}

func TestVarsKeepSources(t *testing.T) {
	vars, _ := usual().Vars("2.4.0", given("backend:native", "setup"), given("roundup_power2_divisions:4", "job.hcl:9"))
	if len(vars) != 1 || vars[0].Source != "setup, job.hcl:2, job.hcl:3, job.hcl:9" {
		t.Errorf("got %+v", vars)
	}
}

// maybe is v half of the time.
func maybe[T any](r *rand.Rand, v T) *Of[T] {
	if r.IntN(2) == 0 {
		return nil
	}
	return at(v, r.IntN(90))
}

func random(r *rand.Rand) *Settings {
	size := func() uint64 { return uint64(1+r.IntN(4096)) * MiB }
	return &Settings{
		Backend:                    maybe(r, []string{"native", "cudaMallocAsync"}[r.IntN(2)]),
		ExpandableSegments:         maybe(r, r.IntN(2) == 0),
		MaxSplitSize:               maybe(r, size()),
		MaxNonSplitRounding:        maybe(r, size()),
		GarbageCollectionThreshold: maybe(r, r.Float64()),
		RoundupPower2Divisions:     maybe(r, []Division{{256 * MiB, 1 << r.IntN(4)}, {0, r.IntN(9)}}),
		MemoryFraction:             maybe(r, r.Float64()),
		LargeSegmentSize:           maybe(r, size()),
	}
}

// TestVarsNeverStopTorch: whatever is asked for, what is written has nothing that the
// version stops at, and each setting is written or has a finding.
func TestVarsNeverStopTorch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	versions := []string{"1.13.1", "2.0.1", "2.1.2", "2.2.0+cu118", "2.4.0", "2.5.1", "2.6.0", "2.8.0+rocm6.4", "2.9.1", "2.10.0a0", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.15.0", ""}
	for range 2000 {
		s, torch := random(r), versions[r.IntN(len(versions))]
		vars, found := s.Vars(torch, nil, nil)
		said := map[string]bool{}
		for _, f := range found {
			said[f.Key] = true
			if f.Severity == Fail {
				t.Fatalf("torch %s, %v: %+v", torch, vars, f)
			}
		}
		var pairs Pairs
		for _, v := range vars {
			parsed, err := Parse(v.Value)
			if err != nil || parsed.Format() != v.Value || v.Source == "" {
				t.Fatalf("%+v: %v", v, err)
			}
			pairs = parsed
		}
		for _, o := range s.list() {
			if value, set := pairs.Get(o.Key); !said[o.Key] && (!set || value != o.Value) {
				t.Fatalf("torch %s: nothing becomes of %+v in %v", torch, o, vars)
			}
		}
	}
}

// TestEverySettingHasAKey: the block's names and torch's belong together.
func TestEverySettingHasAKey(t *testing.T) {
	full := &Settings{
		Backend: at("native", 1), ExpandableSegments: at(true, 1), MaxSplitSize: at(uint64(MiB), 1), MaxNonSplitRounding: at(uint64(MiB), 1),
		GarbageCollectionThreshold: at(0.5, 1), RoundupPower2Divisions: at([]Division{{0, 1}}, 1), MemoryFraction: at(0.5, 1), LargeSegmentSize: at(uint64(MiB), 1),
	}
	if n := len(full.list()); n != 8 {
		t.Errorf("%d settings", n)
	}
	for _, o := range full.list() {
		name := Name(o.Key)
		if keyNamed(o.Key) == nil || !strings.HasPrefix(o.written, name+" = ") {
			t.Errorf("%+v is called %s", o, name)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"2.4.0+cu121": "torch 2.4", "1.13.1": "torch 1.13", "2.10.0.dev20250901": "torch 2.10", "2.9": "torch 2.9",
		"": "torch", "x": "torch", "v2.4": "torch", "2": "torch",
	} {
		if got := parseVersion(text).String(); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if parseVersion("2.10.0a0+x").has(torch(2, 10)) || !parseVersion("2.10.0a0").has(torch(2, 9)) || !parseVersion("2.10.0rc1").has(torch(2, 10)) || !parseVersion("3.0").has(torch(2, 10)) {
		t.Error("builds before a release")
	}
}
