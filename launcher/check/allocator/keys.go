package allocator

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// key is a setting as torch spells it.
type key struct {
	name  string
	since version
	until version // first release without it; zero: it is still there
	// native is set where backend:cudaMallocAsync ignores it. (Settings of pinned host
	// memory hold with both.)
	native bool
	check  func(c *checker, value string)
}

// keys are all settings since torch 1.13, which has those of 1.9 to 1.12 too.
var keys = []key{
	{name: "backend", since: torch(2, 0), check: (*checker).backend},
	{name: "expandable_segments", since: torch(2, 1), native: true, check: (*checker).truth},
	{name: "expandable_segments_reserve", since: torch(2, 15), native: true, check: (*checker).anything},
	{name: "expandable_segments_reserve_by_class", since: torch(2, 15), native: true, check: (*checker).anything},
	{name: "garbage_collection_threshold", since: torch(1, 12), native: true, check: (*checker).threshold},
	{name: "graph_capture_record_stream_reuse", since: torch(2, 9), native: true, check: (*checker).truth},
	{name: "large_segment_size_mb", since: largeSegments, native: true, check: (*checker).segmentSize},
	{name: "max_non_split_rounding_mb", since: torch(2, 6), native: true, check: (*checker).largeSize},
	{name: "max_split_size_mb", since: anyRelease, native: true, check: (*checker).largeSize},
	{name: "per_process_memory_fraction", since: torch(2, 10), native: true, check: (*checker).fraction},
	{name: "pinned_free_catch_all", since: torch(2, 12), check: (*checker).truth},
	{name: "pinned_max_cached_size_mb", since: torch(2, 13), check: (*checker).number},
	{name: "pinned_max_round_threshold_mb", since: torch(2, 13), check: (*checker).number},
	{name: "pinned_num_register_threads", since: torch(2, 2), check: (*checker).threads},
	{name: "pinned_reserve_segment_size_mb", since: torch(2, 10), check: (*checker).positive},
	{name: "pinned_use_background_threads", since: torch(2, 6), check: (*checker).truth},
	{name: "pinned_use_cuda_host_register", since: torch(2, 2), check: (*checker).truth},
	{name: "pinned_use_hip_host_register", since: torch(2, 2), check: (*checker).truth},
	{name: "release_lock_on_cudamalloc", since: torch(2, 2), native: true, check: (*checker).truth},
	{name: "release_lock_on_hipmalloc", since: torch(2, 2), native: true, check: (*checker).truth},
	{name: "roundup_bypass_threshold_mb", since: torch(1, 12), until: torch(2, 1), native: true, check: (*checker).number},
	{name: "roundup_power2_divisions", since: torch(1, 12), native: true, check: (*checker).divisions},
	{name: "throw_on_cudamalloc_oom", since: torch(2, 12), native: true, check: (*checker).truth},
}

// keyNamed is the key of that name, nil where no version has one.
func keyNamed(name string) *key {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &keys[i]
}

// in is whether the version reads the key.
func (k *key) in(v version) bool {
	return v.has(k.since) && (k.until == version{} || !v.has(k.until))
}

// suggestion is the key that name is probably a slip of, "" for none.
func suggestion(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	best, bestDistance := "", 4
	for _, k := range keys {
		short := strings.TrimSuffix(k.name, "_mb")
		if name == short || name == short+"_gb" || strings.HasSuffix(k.name, "_"+name) {
			return k.name
		}
		if d := levenshtein.Distance(name, k.name, nil); d < bestDistance && d < len(name) {
			best, bestDistance = k.name, d
		}
	}
	return best
}
