package allocator

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestCheck: what each version makes of a string. The expectations of 2.15 and those of
// minimums were seen in torch itself.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		torch, text string
		want        string // severity and code of the findings
	}{
		{"2.15.0+cu132", "", ""},
		{"2.15.0+cu132", "max_split_size_mb:128,", ""},
		{"2.15.0+cu132", "max_split_size_mb: 128 , roundup_power2_divisions: [256:1, 512:2, >:4]", ""},
		{"2.15.0", "\tmax_split_size_mb:128\n", ""},
		{"2.9.1", "\tmax_split_size_mb:128", "fail malformed"},
		{"2.15.0", "max_split_size_mb:19", "fail value"},
		{"2.15.0", "max_split_size_mb:20", ""},
		{"2.9.1", "max_split_size_mb:20", "fail value"},
		{"2.9.1", "max_split_size_mb:21", ""},
		{"1.13.1+cu117", "max_split_size_mb:20", "fail value"},
		{"2.15.0", "max_split_size_mb:128x", "warn value"},
		{"2.15.0", "max_split_size_mb:1e3", "warn value, fail value"},
		{"2.15.0", "max_split_size_mb:0x80", "warn value, fail value"},
		{"2.15.0", "max_split_size_mb:-1", "warn value"},
		{"2.15.0", "max_split_size_mb:abc", "fail value"},
		{"2.15.0", "max_split_size_mb:[128]", "fail value"},
		{"2.15.0", "max_split_size_mb:21,large_segment_size_mb:64", "fail value"},
		{"2.15.0", "large_segment_size_mb:64,max_split_size_mb:64", ""},
		{"2.15.0", "large_segment_size_mb:10", "fail value"},
		{"2.15.0", "large_segment_size_mb:11", ""},
		{"2.10.0", "large_segment_size_mb:64", "fail version"},
		{"2.15.0", "max_split_size_mb:64,max_non_split_rounding_mb:19", "fail value"},
		{"2.6.0", "max_split_size_mb:64,max_non_split_rounding_mb:32", ""},
		{"2.5.1", "max_split_size_mb:64,max_non_split_rounding_mb:32", "fail version"},
		{"2.6.0", "max_non_split_rounding_mb:32", "warn pair"},
		{"2.15.0", "expandable_segments:true", "fail value"},
		{"2.15.0", "expandable_segments:1", "fail value"},
		{"2.15.0", "expandable_segments:Tr ue", ""},
		{"2.1.0", "expandable_segments:True", ""},
		{"2.0.1", "expandable_segments:True", "fail version"},
		{"1.13.1", "expandable_segments:False", "fail version"},
		{"2.1.0", "max_split_size_mb:64,expandable_segments:True", "warn pair"},
		{"2.1.0", "garbage_collection_threshold:0.8,expandable_segments:True", "warn pair"},
		{"2.1.0", "garbage_collection_threshold:0.8,expandable_segments:False", ""},
		{"2.15.0", "garbage_collection_threshold:1.0", "fail value"},
		{"2.15.0", "garbage_collection_threshold:0", "fail value"},
		{"2.15.0", "garbage_collection_threshold:80", "fail value"},
		{"2.15.0", "garbage_collection_threshold:nan", "fail value"},
		{"2.15.0", "garbage_collection_threshold:.5", ""},
		{"2.15.0", "garbage_collection_threshold:0.8x", "warn value"},
		{"1.13.1", "garbage_collection_threshold:0.8", ""},
		{"1.11.0", "garbage_collection_threshold:0.8", "fail version"},
		{"2.15.0", "roundup_power2_divisions:4", ""},
		{"2.15.0", "roundup_power2_divisions:3", "fail value"},
		{"2.15.0", "roundup_power2_divisions:0", "fail value"},
		{"2.15.0", "roundup_power2_divisions:[256:1,>:3]", "fail value"},
		{"2.15.0", "roundup_power2_divisions:[3:1]", "fail value"},
		{"2.15.0", "roundup_power2_divisions:[256:0]", ""},
		{"2.3.1", "roundup_power2_divisions:[256:0]", "fail value"},
		{"2.15.0", "roundup_power2_divisions:[]", ""},
		{"2.15.0", "roundup_power2_divisions:[256:1,]", ""},
		{"2.0.1", "roundup_power2_divisions:[256:1]", ""},
		{"1.13.1", "roundup_power2_divisions:[256:1]", "fail value"},
		{"1.13.1", "roundup_power2_divisions:4", ""},
		{"1.13.1", "roundup_bypass_threshold_mb:4", ""},
		{"2.1.0", "roundup_bypass_threshold_mb:4", "fail version"},
		{"2.15.0", "per_process_memory_fraction:0.5", ""},
		{"2.15.0", "per_process_memory_fraction:0", ""},
		{"2.15.0", "per_process_memory_fraction:1.5", "fail value"},
		{"2.10.0", "per_process_memory_fraction:1", ""},
		{"2.9.1", "per_process_memory_fraction:0.5", "fail version"},
		{"2.10.0.dev20250901+cu126", "per_process_memory_fraction:0.5", "fail version"},
		{"2.10.0a0+git1", "per_process_memory_fraction:0.5", "fail version"},
		{"2.11.0.dev20251101", "per_process_memory_fraction:0.5", ""},
		{"2.15.0", "backend:native", ""},
		{"2.15.0", "backend:cudamallocasync", "fail value"},
		{"2.0.0", "backend:cudaMallocAsync", ""},
		{"1.13.1", "backend:native", "fail version"},
		{"2.15.0", "backend:cudaMallocAsync,max_split_size_mb:64", "warn pair"},
		{"2.15.0", "backend:cudaMallocAsync,pinned_use_cuda_host_register:True", ""},
		{"2.15.0", "backend:hipMallocAsync", "fail value"},
		{"2.15.0+rocm6.4", "backend:hipMallocAsync", ""},
		{"2.2.0", "pinned_num_register_threads:8,pinned_use_cuda_host_register:True", ""},
		{"2.2.0", "pinned_num_register_threads:8", "warn pair"},
		{"2.15.0", "pinned_use_cuda_host_register:True,pinned_num_register_threads:256", "fail value"},
		{"2.15.0", "pinned_use_cuda_host_register:True,pinned_num_register_threads:0", "fail value"},
		{"2.15.0", "pinned_use_cuda_host_register:True,pinned_num_register_threads:-1", "fail value"},
		{"2.15.0", "roundup_power2_divisions:-1", "fail value"},
		{"2.15.0", "pinned_reserve_segment_size_mb:0", "fail value"},
		{"2.12.1", "pinned_max_cached_size_mb:0", "fail version"},
		{"2.13.0", "pinned_max_cached_size_mb:0", ""},
		{"2.15.0", "expandable_segments_reserve:40G", ""},
		{"2.15.0", "expandable_segments_reserve_by_class:[a:0.5]", ""},
		{"2.14.1", "expandable_segments_reserve:40G", "fail version"},
		{"2.15.0", "foo:1", "fail unknown_key"},
		{"2.15.0", "max_split_size:128", "fail unknown_key"},
		{"2.15.0", ",", "fail malformed"},
		{"2.15.0", ",max_split_size_mb:128", "fail malformed"},
		{"2.15.0", "max_split_size_mb:128,,", "fail malformed"},
		{"2.15.0", "max_split_size_mb", "fail malformed"},
		{"2.15.0", "max_split_size_mb:", "fail malformed"},
		{"2.15.0", "max_split_size_mb::30", "fail malformed"},
		{"2.15.0", "max_split_size_mb=128", "fail malformed"},
		{"2.15.0", "max_split_size_mb:128;expandable_segments:True", "fail malformed"},
		{"2.15.0", "max_split_size_mb:128 expandable_segments:True", "fail malformed"},
		{"2.15.0", "roundup_power2_divisions:[256:1", "fail malformed"},
		{"2.15.0", "expandable_segments:True]", "fail malformed"}, // torch takes it, as something
		{"", "max_split_size_mb:20,per_process_memory_fraction:0.5", ""},
		{"", "foo:1", "fail unknown_key"},
		{"unknown", "max_split_size_mb:19", "fail value"},
	} {
		var got []string
		for _, f := range Check(test.text, test.torch) {
			got = append(got, f.Severity+" "+strings.TrimPrefix(f.Code, "allocator_"))
			if f.Message == "" {
				t.Errorf("%q: %+v", test.text, f)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("torch %s, %q: got %v, want %q", test.torch, test.text, got, test.want)
		}
	}
}

// TestCheckSaysWhatToWrite: the advice for what people write.
func TestCheckSaysWhatToWrite(t *testing.T) {
	for text, want := range map[string]string{
		"expandable_segments:on":          "write expandable_segments:True",
		"backend:cudamallocasync":         "write cudaMallocAsync",
		"max_split_size:128":              "did you mean max_split_size_mb?",
		"max-split-size-mb:128":           "did you mean max_split_size_mb?",
		"expandable_segment:True":         "did you mean expandable_segments?",
		"memory_fraction:0.5":             "did you mean per_process_memory_fraction?",
		"garbage_collection_threshold:80": "write 0.8 for 80%",
		"max_split_size_mb=128":           "max_split_size_mb:128",
		"per_process_memory_fraction:0.5": "there since torch 2.10",
	} {
		found := Check(text, "2.4.1")
		if len(found) == 0 || !strings.Contains(found[0].Message, want) {
			t.Errorf("%q gives %+v, want %q", text, found, want)
		}
	}
}

func TestParse(t *testing.T) {
	pairs, err := Parse(" max_split_size_mb : 128 , roundup_power2_divisions:[256:1, >:2],max_split_size_mb:64")
	want := Pairs{{"max_split_size_mb", "128"}, {"roundup_power2_divisions", "[256:1,>:2]"}, {"max_split_size_mb", "64"}}
	if err != nil || !slices.Equal(pairs, want) {
		t.Errorf("got %q, %v", pairs, err)
	}
	if value, _ := pairs.Get("max_split_size_mb"); value != "64" {
		t.Errorf("the last one is in force, not %s", value)
	}
}

// FuzzParse: what is parsed is written to the same again, errors lie in the text, and no
// string makes Check panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a:b", "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:2],", "a:[b", "a:[]],", "\x80:\x80", "a\u0085:b", "x:1,,"} {
		f.Add(seed, "2.4.0")
	}
	f.Fuzz(func(t *testing.T, text, torch string) {
		Check(text, torch)
		pairs, err := Parse(text)
		if problem, ok := errors.AsType[*ParseError](err); ok {
			if problem.At < 0 || problem.At > len(text) || problem.Problem == "" {
				t.Errorf("%q: %+v", text, problem)
			}
			return
		}
		again, err := Parse(pairs.Format())
		if err != nil || !slices.Equal(again, pairs) {
			t.Errorf("%q: %q, %v", text, pairs.Format(), err)
		}
	})
}

func TestCheckVars(t *testing.T) {
	on, off := "expandable_segments:True", "expandable_segments:False"
	for name, test := range map[string]struct {
		torch string
		vars  []Given
		want  string
	}{
		"nothing set":            {"2.9.0", nil, ""},
		"other variables":        {"2.9.0", []Given{{"PATH", "x", ""}}, ""},
		"the old name is read":   {"2.9.0", []Given{{CUDAName, on, ""}}, ""},
		"the new one not yet":    {"2.9.0", []Given{{GeneralName, on, "a"}}, "PYTORCH_ALLOC_CONF (a) is not read by torch 2.9: set PYTORCH_CUDA_ALLOC_CONF"},
		"the new one since 2.10": {"2.10.0", []Given{{GeneralName, on, "a"}}, ""},
		"both alike":             {"2.10.0", []Given{{GeneralName, on, "a"}, {CUDAName, on, "b"}}, ""},
		"both different":         {"2.10.0", []Given{{GeneralName, on, "a"}, {CUDAName, off, "b"}}, `PYTORCH_CUDA_ALLOC_CONF is "expandable_segments:False" (b) and PYTORCH_ALLOC_CONF`},
		"set to nothing":         {"2.10.0", []Given{{GeneralName, on, "a"}, {CUDAName, "", "b"}}, `PYTORCH_CUDA_ALLOC_CONF is "" (b)`},
		"AMD's":                  {"2.4.0+rocm6.1", []Given{{HIPName, on, "a"}}, ""},
		"AMD's without AMD":      {"2.4.0+cu121", []Given{{HIPName, on, "a"}}, "is not read by torch 2.4"},
		"unknown version":        {"", []Given{{GeneralName, on, "a"}}, ""},
		"what is wrong with it":  {"2.4.0", []Given{{CUDAName, "foo:1", "job.hcl:3"}}, `PYTORCH_CUDA_ALLOC_CONF (job.hcl:3): torch stops at the setting "foo"`},
		"the later of one name":  {"2.4.0", []Given{{CUDAName, "foo:1", "host"}, {CUDAName, on, "env"}}, ""},
	} {
		found := CheckVars(test.vars, test.torch)
		if (test.want == "") != (len(found) == 0) || test.want != "" && !strings.Contains(found[0].Message, test.want) {
			t.Errorf("%s: got %+v, want %q", name, found, test.want)
		}
	}
}
