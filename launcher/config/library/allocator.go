package library

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/quantity"
)

var allocatorSchema = decode.Schema{
	Where: "an allocator block",
	Args: []string{
		"max_split_size", "expandable_segments", "garbage_collection_threshold", "roundup_power2_divisions", "backend",
		"memory_fraction", "max_non_split_rounding", "large_segment_size",
	},
	Elsewhere: torchAllocatorNames(),
}

// torchAllocatorNames say how torch's settings are written here that have another name, or none.
func torchAllocatorNames() map[string]string {
	names := map[string]string{
		"max_split_size_mb":           `max_split_size = "128MiB"`,
		"max_non_split_rounding_mb":   `max_non_split_rounding = "128MiB"`,
		"large_segment_size_mb":       `large_segment_size = "128MiB"`,
		"per_process_memory_fraction": "memory_fraction = 0.9",
	}
	for _, key := range allocator.Keys() {
		if allocator.Name(key) == "" {
			names[key] = fmt.Sprintf("env = { PYTORCH_CUDA_ALLOC_CONF = \"%s:...\" }", key)
		}
	}
	return names
}

// Bounds of sizes that the allocator is told. It takes a segment of 20 MiB for requests of
// 1 to 10 MiB unless large_segment_size says otherwise, and no limit may be below that.
const (
	minLargeSegment  = 11 * allocator.MiB
	minSplitSize     = 20 * allocator.MiB
	maxAllocatorSize = 16 << 40
	maxDivisionSize  = 64 << 30
	maxSteps         = 1 << 10
)

// cudaMallocAsync is the backend that most of the other settings are not for.
const cudaMallocAsync = "cudaMallocAsync"

// AllocatorArgs are the arguments of an allocator block.
func AllocatorArgs() []string { return allocatorSchema.Args }

// DecodeAllocator decodes an allocator block, nil where there is none.
func DecodeAllocator(b *decode.Block) *allocator.Settings {
	if b == nil {
		return nil
	}
	b.Open(allocatorSchema)
	flag := func(a *decode.Arg) bool { return decode.Bool(a, false) }
	backend := func(a *decode.Arg) string { return decode.OneOf(a, "", []string{"native", cudaMallocAsync}) }
	s := &allocator.Settings{
		Backend:                    setting(b, "backend", backend),
		ExpandableSegments:         setting(b, "expandable_segments", flag),
		MaxSplitSize:               setting(b, "max_split_size", mebibytes(minSplitSize)),
		MaxNonSplitRounding:        setting(b, "max_non_split_rounding", mebibytes(minSplitSize)),
		GarbageCollectionThreshold: setting(b, "garbage_collection_threshold", fraction(false)),
		RoundupPower2Divisions:     setting(b, "roundup_power2_divisions", divisions),
		MemoryFraction:             setting(b, "memory_fraction", fraction(true)),
		LargeSegmentSize:           setting(b, "large_segment_size", mebibytes(minLargeSegment)),
	}
	checkAllocatorPairs(b, s)
	return s
}

// setting is one argument with its place, nil where it is not set or wrong.
func setting[T any](b *decode.Block, name string, read func(*decode.Arg) T) *allocator.Of[T] {
	a := b.Arg(name)
	if !a.IsSet() {
		return nil
	}
	value := read(a)
	if a.Wrong() {
		return nil
	}
	return &allocator.Of[T]{Value: value, Source: a.Source()}
}

// mebibytes reads a size that torch counts in whole MiB.
func mebibytes(low uint64) func(*decode.Arg) uint64 {
	return func(a *decode.Arg) uint64 {
		size := decode.Size(a, 0, low, maxAllocatorSize)
		if over := size % allocator.MiB; over != 0 {
			above := quantity.FormatSize(size - over + allocator.MiB)
			advice := fmt.Sprintf("%q", above)
			if below := size - over; below >= low {
				advice = fmt.Sprintf("%q or %q", quantity.FormatSize(below), above)
			}
			a.Error("Invalid size", "torch counts %s in whole MiB: write %s.", a.Name, advice)
		}
		return size
	}
}

// fraction reads a number above 0 and below 1, or 1 itself where all is allowed.
func fraction(all bool) func(*decode.Arg) float64 {
	bounds := "more than 0 and less than 1"
	if all {
		bounds = "more than 0 and at most 1"
	}
	return func(a *decode.Arg) float64 {
		x := 0.0
		if number, ok := a.Number(); ok {
			x, _ = number.AsBigFloat().Float64()
		}
		if x <= 0 || x > 1 || x == 1 && !all {
			a.Error("Invalid fraction", "%s is a number that is %s, such as 0.8, not %s.%s", a.Name, bounds, a.Describe(), percentAdvice(a))
		}
		return x
	}
}

// percentAdvice is for a fraction that is written as per cent.
func percentAdvice(a *decode.Arg) string {
	number, ok := a.Number()
	if word, isText := a.Word(); isText {
		parsed, err := cty.ParseNumberVal(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(word), "%")))
		number, ok = parsed, err == nil
	}
	if !ok {
		return ""
	}
	x, _ := number.AsBigFloat().Float64()
	if x < 1 || x > 100 {
		return ""
	}
	return fmt.Sprintf(" For per cent write %v.", x/100)
}

// powerOfTwo is a whole number that is one.
func powerOfTwo(a *decode.Arg, name string, low, high int) int {
	n, ok := a.WholeNumber()
	if !ok || n < low || n > high || n != 0 && !allocator.PowerOfTwo(uint64(n)) {
		a.Error("Invalid number", "%s is 1, 2, 4, 8 or another power of two up to %d, not %s.", name, high, a.Describe())
		return 0
	}
	return n
}

// divisions is a number of steps for all sizes, or an object of sizes with theirs.
func divisions(a *decode.Arg) (list []allocator.Division) {
	entries, isObject := a.Entries("Repeated size", "%s has a number at %s already.")
	_, isList := a.Elements()
	_, isBool := a.Truth()
	switch {
	case isList || isBool:
		a.Error("Wrong type",
			"%s is a power of two, or an object of sizes and theirs, such as { \"256MiB\" = 1, \"512MiB\" = 2, \">\" = 4 }, not %s.", a.Name, a.Describe())
		return nil
	case !isObject:
		return []allocator.Division{{Steps: powerOfTwo(a, a.Name, 1, maxSteps)}}
	}
	for _, e := range entries {
		list = append(list, allocator.Division{
			Size:  divisionSize(a, e.Name),
			Steps: powerOfTwo(e.Value, "The number for "+diagnostic.Quoted(e.Name), 0, maxSteps),
		})
	}
	if len(list) == 0 || len(list) == 1 && list[0].Size == 0 {
		a.Error("Invalid value", "%s names no size: write a power of two alone for all sizes.", a.Name)
	}
	// The one for all others, of size 0, comes last.
	slices.SortFunc(list, func(a, b allocator.Division) int { return cmp.Compare(a.Size-1, b.Size-1) })
	return list
}

// divisionSize is a size in divisions; 0 is the sign ">", for all others.
func divisionSize(a *decode.Arg, text string) uint64 {
	if text == ">" {
		return 0
	}
	size, err := quantity.ParseSize(text)
	switch {
	case err != nil:
		a.Error("Invalid size", "%s. For all larger sizes write \">\".", expr.Capital(err.Error()))
	case !allocator.PowerOfTwo(size) || size < allocator.MiB || size > maxDivisionSize:
		a.Error("Invalid size", "A size in %s is a power of two from 1MiB to %s, not %s.", a.Name, quantity.FormatSize(maxDivisionSize), diagnostic.Quoted(text))
	}
	return size
}

// checkAllocatorPairs refuses settings that cannot go together, and warns of those that do
// nothing beside each other.
func checkAllocatorPairs(b *decode.Block, s *allocator.Settings) {
	backend, large := b.Arg("backend"), b.Arg("large_segment_size")
	async := s.Backend != nil && s.Backend.Value == cudaMallocAsync
	for name, a := range b.Args() {
		isFalse := s.ExpandableSegments != nil && !s.ExpandableSegments.Value && name == "expandable_segments"
		if async && a.IsSet() && !isFalse && allocator.NativeOnly(allocator.Key(name)) {
			b.File.ErrorAlso(a.NameAt, backend.NameAt, "Impossible pair",
				"%s does nothing with the backend cudaMallocAsync, which is chosen at %s and ignores it. Take one of the two out.", name, backend.NameAt)
		}
	}
	if s.LargeSegmentSize != nil && s.MaxSplitSize != nil && s.MaxSplitSize.Value < s.LargeSegmentSize.Value {
		b.Arg("max_split_size").ErrorAlso(large.At, "Size out of range",
			"max_split_size is at least large_segment_size, which is %s at %s.", quantity.FormatSize(s.LargeSegmentSize.Value), large.At)
	}
	idle := func(isSet bool, name, reason string) {
		if isSet {
			b.Arg(name).NoEffect("No effect", "%s has no effect: %s.", name, reason)
		}
	}
	if s.ExpandableSegments != nil && s.ExpandableSegments.Value && !async {
		idle(s.MaxSplitSize != nil, "max_split_size", "blocks of expandable segments are split whatever their size. Take one of the two out")
		idle(s.GarbageCollectionThreshold != nil, "garbage_collection_threshold", "it frees no part of expandable segments. Take one of the two out")
	}
	idle(s.MaxSplitSize == nil && s.MaxNonSplitRounding != nil, "max_non_split_rounding", "it is about blocks that max_split_size keeps whole. Set that too")
}

// WarnOfAllocator says what is to be known of allocator settings in env: what no version
// of torch would take, and what they change of the allocator block. Which version the ranks
// use is not known yet.
func WarnOfAllocator(f *expr.Evaluator, settings *allocator.Settings, doubt Doubt, vars []Var) {
	var given []allocator.Given
	var first hcl.Range
	for _, v := range vars {
		if !slices.Contains(allocator.Names, v.Name) {
			continue
		}
		if len(given) == 0 {
			first = v.Key
		}
		given = append(given, allocator.Given{Name: v.Name, Text: v.Value, Source: v.Source})
		for _, found := range allocator.Check(v.Value, "") {
			doubt(found.Code, v.At, "Dangerous value", "%s: %s", v.Name, sentence(found.Message))
		}
		pairs, _ := allocator.Parse(v.Value)
		for _, pair := range pairs {
			if written, source, set := settings.Sets(pair.Key); set {
				f.Warn(v.At, "Set twice", "%s is set here and by %s of the allocator block at %s: env wins. Keep one of the two.", pair.Key, written, source)
			}
		}
	}
	for _, found := range allocator.CheckVars(given, "") { // several, with different settings
		if found.Code == allocator.CodeNames && len(given) > 1 {
			f.Warn(first, "Set twice", "%s. Keep one of the two.", found.Message)
		}
	}
}
