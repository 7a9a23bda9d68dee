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
	var all []own
	add(&all, "backend", s.Backend, func(v string) string { return v }, strconv.Quote)
	add(&all, "expandable_segments", s.ExpandableSegments, truth, strconv.FormatBool)
	add(&all, "max_split_size", s.MaxSplitSize, mib, size)
	add(&all, "max_non_split_rounding", s.MaxNonSplitRounding, mib, size)
	add(&all, "garbage_collection_threshold", s.GarbageCollectionThreshold, number, number)
	add(&all, "roundup_power2_divisions", s.RoundupPower2Divisions, divisions, divisions)
	add(&all, "memory_fraction", s.MemoryFraction, number, number)
	add(&all, "large_segment_size", s.LargeSegmentSize, mib, size)
	return all
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
func add[T any](all *[]own, name string, v *Of[T], torchs, written func(T) string) {
	if v != nil {
		*all = append(*all, own{Pair{Key: Key(name), Value: torchs(v.Value)}, name + " = " + written(v.Value), v.Source})
	}
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
