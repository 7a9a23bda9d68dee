package allocator

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Settings are what an allocator block asks for. What is nil is not asked for.
type Settings struct {
	Backend                    *Of[string]     // "native" or "cudaMallocAsync"
	ExpandableSegments         *Of[bool]       // one range of addresses that grows, for many fixed segments
	MaxSplitSize               *Of[uint64]     // bytes; larger free blocks are never split
	MaxNonSplitRounding        *Of[uint64]     // bytes that an unsplit block may be larger than what is asked of it
	GarbageCollectionThreshold *Of[float64]    // part of the memory from which on unused blocks are freed
	RoundupPower2Divisions     *Of[[]Division] // by size; one without size is for all
	MemoryFraction             *Of[float64]    // of the device that the allocator may take
	LargeSegmentSize           *Of[uint64]     // bytes

	ThrowOnCudaMallocOOM          *Of[bool]
	ReleaseLockOnCudaMalloc       *Of[bool]
	GraphCaptureRecordStreamReuse *Of[bool]
	PinnedUseCudaHostRegister     *Of[bool]
	PinnedNumRegisterThreads      *Of[int]
	PinnedUseBackgroundThreads    *Of[bool]
	PinnedReserveSegmentSize      *Of[uint64] // bytes
	PinnedMaxRoundThreshold       *Of[uint64] // bytes
	PinnedMaxCachedSize           *Of[uint64] // bytes
}

// Of is a value and where it is written, FILE:LINE.
type Of[T any] struct {
	Value  T
	Source string
}

// Division is into how many steps the sizes between a power of two and the next are
// divided.
type Division struct {
	Size  uint64 // bytes; the first of a list is for smaller ones too, 0 for all others
	Steps int    // a power of two; 0: no rounding
}

// MiB is the unit of torch's sizes, which it calls MB.
const MiB = 1 << 20

// own is a setting in torch's words, and in the job file's.
type own struct {
	Pair
	written string // such as max_split_size = "128MiB"
	source  string
}

// list is what is asked for, as torch reads it.
func (s *Settings) list() []own {
	var l []own
	l = add(l, "backend", "backend", s.Backend, func(v string) string { return v }, strconv.Quote)
	l = add(l, "expandable_segments", "expandable_segments", s.ExpandableSegments, truth, strconv.FormatBool)
	l = add(l, "max_split_size", "max_split_size_mb", s.MaxSplitSize, mib, size)
	l = add(l, "max_non_split_rounding", "max_non_split_rounding_mb", s.MaxNonSplitRounding, mib, size)
	l = add(l, "garbage_collection_threshold", "garbage_collection_threshold", s.GarbageCollectionThreshold, number, number)
	l = add(l, "roundup_power2_divisions", "roundup_power2_divisions", s.RoundupPower2Divisions, divisions, divisions)
	l = add(l, "memory_fraction", "per_process_memory_fraction", s.MemoryFraction, number, number)
	l = add(l, "large_segment_size", "large_segment_size_mb", s.LargeSegmentSize, mib, size)
	l = add(l, "throw_on_cudamalloc_oom", "throw_on_cudamalloc_oom", s.ThrowOnCudaMallocOOM, truth, strconv.FormatBool)
	l = add(l, "release_lock_on_cudamalloc", "release_lock_on_cudamalloc", s.ReleaseLockOnCudaMalloc, truth, strconv.FormatBool)
	l = add(l, "graph_capture_record_stream_reuse", "graph_capture_record_stream_reuse", s.GraphCaptureRecordStreamReuse, truth, strconv.FormatBool)
	l = add(l, "pinned_use_cuda_host_register", "pinned_use_cuda_host_register", s.PinnedUseCudaHostRegister, truth, strconv.FormatBool)
	l = add(l, "pinned_num_register_threads", "pinned_num_register_threads", s.PinnedNumRegisterThreads, strconv.Itoa, strconv.Itoa)
	l = add(l, "pinned_use_background_threads", "pinned_use_background_threads", s.PinnedUseBackgroundThreads, truth, strconv.FormatBool)
	l = add(l, "pinned_reserve_segment_size", "pinned_reserve_segment_size_mb", s.PinnedReserveSegmentSize, mib, size)
	l = add(l, "pinned_max_round_threshold", "pinned_max_round_threshold_mb", s.PinnedMaxRoundThreshold, mib, size)
	return add(l, "pinned_max_cached_size", "pinned_max_cached_size_mb", s.PinnedMaxCachedSize, mib, size)
}

// Sets is what a block says of one of torch's settings, such as max_split_size = "128MiB",
// and where.
func (s *Settings) Sets(key string) (written, source string, set bool) {
	if s == nil {
		return "", "", false
	}
	for _, o := range s.list() {
		if o.Key == key {
			return o.written, o.source, true
		}
	}
	return "", "", false
}

// add appends one setting where it is asked for.
func add[T any](l []own, name, key string, v *Of[T], torchs, written func(T) string) []own {
	if v == nil {
		return l
	}
	return append(l, own{Pair{Key: key, Value: torchs(v.Value)}, name + " = " + written(v.Value), v.Source})
}

func truth(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

func mib(bytes uint64) string { return strconv.FormatUint(bytes/MiB, 10) }

func size(bytes uint64) string { return strconv.Quote(mib(bytes) + "MiB") }

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func divisions(list []Division) string {
	if len(list) == 1 && list[0].Size == 0 {
		return strconv.Itoa(list[0].Steps)
	}
	parts := make([]string, len(list))
	for i, d := range list {
		parts[i] = fmt.Sprintf("%s:%d", mib(d.Size), d.Steps)
		if d.Size == 0 {
			parts[i] = fmt.Sprintf(">:%d", d.Steps)
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// PowerOfTwo is whether n is one; torch takes no other numbers of steps, and for no other
// sizes.
func PowerOfTwo(n uint64) bool { return bits.OnesCount64(n) == 1 }

// Name is what an allocator block calls one of torch's settings, and whether its value is
// a size with a unit there; "" where the block has no such setting.
func Name(key string) (name string, isSize bool) {
	switch key {
	case "per_process_memory_fraction":
		return "memory_fraction", false
	case "pinned_use_hip_host_register":
		return "pinned_use_cuda_host_register", false
	case "release_lock_on_hipmalloc":
		return "release_lock_on_cudamalloc", false
	case "roundup_bypass_threshold_mb", "expandable_segments_reserve", "expandable_segments_reserve_by_class", "pinned_free_catch_all":
		return "", false
	}
	if keyNamed(key) == nil {
		return "", false
	}
	name, isSize = strings.CutSuffix(key, "_mb")
	return name, isSize
}

// Key is torch's name for what an allocator block calls name; "" for none.
func Key(name string) string {
	for _, k := range keys {
		if ours, _ := Name(k.name); ours == name && !strings.Contains(k.name, "hip") {
			return k.name
		}
	}
	return ""
}

// NativeOnly is whether the backend cudaMallocAsync ignores a setting, by torch's name.
func NativeOnly(key string) bool {
	k := keyNamed(key)
	return k != nil && k.native
}
