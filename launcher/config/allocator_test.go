package config

import (
	"fmt"
	"strings"
	"testing"
)

func withAllocator(body string) (Source, string) {
	src := Source{Filename: "job.hcl", Text: fmt.Appendf(nil, "job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n allocator {\n  %s\n }\n}", body)}
	_, diags := src.Evaluate()
	var b strings.Builder
	_ = WriteDiagnostics(&b, src, diags, 0, false)
	return src, b.String()
}

// TestAllocatorSaysWhatToWrite: sizes, fractions and names as people have them at hand.
func TestAllocatorSaysWhatToWrite(t *testing.T) {
	for body, want := range map[string]string{
		`max_split_size = "30.5MiB"`:                  `torch counts max_split_size in whole MiB: write "30MiB" or "31MiB"`,
		`max_split_size = "1MiB"`:                     "max_split_size lies between 20MiB and 16TiB",
		`max_split_size = 128`:                        `write "128GiB"`,
		`max_split_size = "128MB"`:                    `write "128MiB"`,
		`max_split_size_mb = 128`:                     `has no argument "max_split_size_mb". Write max_split_size = "128MiB"`,
		`pinned_use_background_threads = true`:        `Write env = { PYTORCH_CUDA_ALLOC_CONF = "pinned_use_background_threads:..." }`,
		`per_process_memory_fraction = 0.45`:          "Write memory_fraction = ",
		`max_split = "128MiB"`:                        "It takes the arguments",
		`garbage_collection_threshold = 80`:           "For per cent write 0.8.",
		`garbage_collection_threshold = 0`:            "more than 0 and less than 1, such as 0.8, not the number 0.",
		`memory_fraction = "45%"`:                     "For per cent write 0.45.",
		`memory_fraction = "half"`:                    `not the text "half".`,
		`memory_fraction = [1]`:                       "not a list.",
		`memory_fraction = 1e300`:                     "Invalid fraction",
		`roundup_power2_divisions = [4]`:              `or an object of sizes and theirs, such as { "256MiB" = 1`,
		`roundup_power2_divisions = {}`:               "names no size",
		`roundup_power2_divisions = { "300MiB" = 1 }`: "is a power of two from 1MiB to 64GiB",
		`roundup_power2_divisions = { 256 = 1 }`:      "has no unit",
		`roundup_power2_divisions = { "1GiB" = 3 }`:   `The number for "1GiB" is 1, 2, 4, 8`,
		`backend = "async"`:                           `"native", "cudaMallocAsync"`,
	} {
		if _, text := withAllocator(body); !strings.Contains(text, want) {
			t.Errorf("%s gives\n%swant %s", body, text, want)
		}
	}
}

// TestAllocatorValues: what text of -var and numbers come to.
func TestAllocatorValues(t *testing.T) {
	for body, want := range map[string]string{
		`memory_fraction = "0.5"`:                               "per_process_memory_fraction:0.5",
		`memory_fraction = 1`:                                   "per_process_memory_fraction:1",
		`max_split_size = "1.5GiB"`:                             "max_split_size_mb:1536",
		`expandable_segments = "true"`:                          "expandable_segments:True",
		`roundup_power2_divisions = 4`:                          "roundup_power2_divisions:4",
		`roundup_power2_divisions = { "1GiB" = 0, "1MiB" = 2 }`: "roundup_power2_divisions:[1:2,1024:0]",
		`roundup_power2_divisions = { ">" = 8, "1GiB" = 4 }`:    "roundup_power2_divisions:[1024:4,>:8]",
	} {
		src, text := withAllocator(body)
		job, _ := src.Evaluate()
		if job == nil {
			t.Errorf("%s gives\n%s", body, text)
			continue
		}
		vars, findings := job.Allocator.Vars("2.15.0", nil, nil)
		if len(findings) > 0 || len(vars) != 2 || vars[0].Value != want || vars[0].Source != "job.hcl:5" {
			t.Errorf("%s gives %+v %+v, want %s", body, vars, findings, want)
		}
	}
}
