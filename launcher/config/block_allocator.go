package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/check/allocator"
)

var allocatorSchema = schema{
	where: "an allocator block",
	attrs: []attrSchema{
		{name: "max_split_size"},
		{name: "expandable_segments"},
		{name: "garbage_collection_threshold"},
		{name: "roundup_power2_divisions"},
		{name: "backend"},
		{name: "memory_fraction"},
		{name: "max_non_split_rounding"},
		{name: "large_segment_size"},
		{name: "throw_on_cudamalloc_oom"},
		{name: "release_lock_on_cudamalloc"},
		{name: "graph_capture_record_stream_reuse"},
		{name: "pinned_use_cuda_host_register"},
		{name: "pinned_num_register_threads"},
		{name: "pinned_use_background_threads"},
		{name: "pinned_reserve_segment_size"},
		{name: "pinned_max_round_threshold"},
		{name: "pinned_max_cached_size"},
	},
}

// Bounds of sizes that the allocator is told. It takes a segment of 20 MiB for requests of
// 1 to 10 MiB unless large_segment_size says otherwise, and no limit may be below that.
const (
	minAllocatorSize = allocator.MiB
	minLargeSegment  = 11 * allocator.MiB
	minSplitSize     = 20 * allocator.MiB
	maxAllocatorSize = 16 << 40
	maxDivisionSize  = 64 << 30
	maxSteps         = 1 << 10
	maxRegister      = 128 // threads
)

// cudaMallocAsync is the backend that most of the other settings are not for.
const cudaMallocAsync = "cudaMallocAsync"

// allocator decodes an allocator block, nil where there is none.
func (d *decoder) allocator(block *hclsyntax.Block) *allocator.Settings {
	if block == nil {
		return nil
	}
	c := d.content(d.withoutTorchsNames(block.Body), block.DefRange(), allocatorSchema)
	s := &allocator.Settings{
		Backend:                       setting(d, c, "backend", d.allocatorBackend),
		ExpandableSegments:            setting(d, c, "expandable_segments", d.bool),
		MaxSplitSize:                  setting(d, c, "max_split_size", d.mebibytes(minSplitSize)),
		MaxNonSplitRounding:           setting(d, c, "max_non_split_rounding", d.mebibytes(minSplitSize)),
		GarbageCollectionThreshold:    setting(d, c, "garbage_collection_threshold", d.properFraction),
		RoundupPower2Divisions:        setting(d, c, "roundup_power2_divisions", d.divisions),
		MemoryFraction:                setting(d, c, "memory_fraction", d.fraction),
		LargeSegmentSize:              setting(d, c, "large_segment_size", d.mebibytes(minLargeSegment)),
		ThrowOnCudaMallocOOM:          setting(d, c, "throw_on_cudamalloc_oom", d.bool),
		ReleaseLockOnCudaMalloc:       setting(d, c, "release_lock_on_cudamalloc", d.bool),
		GraphCaptureRecordStreamReuse: setting(d, c, "graph_capture_record_stream_reuse", d.bool),
		PinnedUseCudaHostRegister:     setting(d, c, "pinned_use_cuda_host_register", d.bool),
		PinnedNumRegisterThreads:      setting(d, c, "pinned_num_register_threads", d.registerThreads),
		PinnedUseBackgroundThreads:    setting(d, c, "pinned_use_background_threads", d.bool),
		PinnedReserveSegmentSize:      setting(d, c, "pinned_reserve_segment_size", d.mebibytes(minAllocatorSize)),
		PinnedMaxRoundThreshold:       setting(d, c, "pinned_max_round_threshold", d.mebibytes(minAllocatorSize)),
		PinnedMaxCachedSize:           setting(d, c, "pinned_max_cached_size", d.mebibytes(minAllocatorSize)),
	}
	d.allocatorPairs(c, s)
	return s
}

// setting is one attribute with its place, nil where it is not set or wrong.
func setting[T any](d *decoder, c content, name string, read func(*hclsyntax.Attribute) T) *allocator.Of[T] {
	attr, known := c.attrs[name], len(d.diags)
	if !d.isSet(attr) {
		return nil
	}
	value := read(attr)
	if d.diags[known:].HasErrors() {
		return nil
	}
	return &allocator.Of[T]{Value: value, Source: fmt.Sprintf("%s:%d", attr.NameRange.Filename, attr.NameRange.Start.Line)}
}

// withoutTorchsNames is the body without arguments that have torch's own names where the
// block's are others, which it reports.
func (d *decoder) withoutTorchsNames(body *hclsyntax.Body) *hclsyntax.Body {
	own := *body
	own.Attributes = maps.Clone(body.Attributes)
	for name, attr := range body.Attributes {
		ours, isSize := allocator.Name(name)
		if ours == "" || ours == name {
			continue
		}
		delete(own.Attributes, name)
		example := "..."
		if isSize {
			example = `"128MiB"`
		}
		if written := d.scope.written(attr.Expr); written != "" && isSize {
			example = `"` + written + `MiB"`
		} else if written != "" {
			example = written
		}
		d.error(attr.NameRange, "Unsupported argument", "torch's %s is called %s here: write %s = %s", name, ours, ours, example)
	}
	return &own
}

func (d *decoder) allocatorBackend(attr *hclsyntax.Attribute) string {
	return d.oneOf(attr, "", []string{"native", cudaMallocAsync})
}

// mebibytes reads a size that torch counts in whole MiB.
func (d *decoder) mebibytes(low uint64) func(*hclsyntax.Attribute) uint64 {
	return func(attr *hclsyntax.Attribute) uint64 {
		size := d.size(attr, 0, low, maxAllocatorSize)
		if over := size % allocator.MiB; over != 0 {
			above := formatSize(size - over + allocator.MiB)
			advice := fmt.Sprintf("%q", above)
			if below := size - over; below >= low {
				advice = fmt.Sprintf("%q or %q", formatSize(below), above)
			}
			d.error(attr.Expr.Range(), "Invalid size", "torch counts %s in whole MiB: write %s.", attr.Name, advice)
		}
		return size
	}
}

// fraction is more than 0 and at most 1.
func (d *decoder) fraction(attr *hclsyntax.Attribute) float64 {
	return d.fractionUpTo(attr, func(x float64) bool { return x <= 1 }, "more than 0 and at most 1")
}

// properFraction lies between 0 and 1.
func (d *decoder) properFraction(attr *hclsyntax.Attribute) float64 {
	return d.fractionUpTo(attr, func(x float64) bool { return x < 1 }, "more than 0 and less than 1")
}

func (d *decoder) fractionUpTo(attr *hclsyntax.Attribute, fits func(float64) bool, bounds string) float64 {
	value, _ := d.attr(attr)
	number := value
	if value.Type() == cty.String {
		text, isPercent := strings.CutSuffix(strings.TrimSpace(value.AsString()), "%")
		if parsed, err := cty.ParseNumberVal(text); err == nil && sensible(parsed) && !isPercent {
			number = parsed
		}
	}
	x := 0.0
	if number.Type() == cty.Number {
		x, _ = number.AsBigFloat().Float64()
	}
	if x <= 0 || !fits(x) {
		d.error(attr.Expr.Range(), "Invalid fraction", "%s is a number that is %s, such as 0.8, not %s.%s", attr.Name, bounds, describe(value), percentAdvice(value))
	}
	return x
}

// percentAdvice is for a fraction that is written as per cent.
func percentAdvice(value cty.Value) string {
	number := value
	if value.Type() == cty.String {
		text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value.AsString()), "%"))
		parsed, err := cty.ParseNumberVal(text)
		if err != nil || !sensible(parsed) {
			return ""
		}
		number = parsed
	}
	if number.Type() != cty.Number {
		return ""
	}
	hundredth := number.Divide(cty.NumberIntVal(100))
	if x, _ := hundredth.AsBigFloat().Float64(); x < 0.01 || x > 1 {
		return ""
	}
	return " For per cent write " + digits(hundredth.AsBigFloat()) + "."
}

func (d *decoder) registerThreads(attr *hclsyntax.Attribute) int {
	return d.powerOfTwo(attr.Expr, attr.Name, 1, maxRegister)
}

// powerOfTwo is a whole number that is one.
func (d *decoder) powerOfTwo(expr hclsyntax.Expression, name string, low, high int) int {
	value, ok := d.value(expr)
	if !ok {
		return 0
	}
	return d.powerOfTwoIn(value, expr.Range(), name, low, high)
}

func (d *decoder) powerOfTwoIn(value cty.Value, at hcl.Range, name string, low, high int) int {
	n, ok := 0, false
	if !value.IsNull() {
		n, ok = d.wholeNumber(value)
	}
	if !ok || n < low || n > high || n != 0 && !allocator.PowerOfTwo(uint64(n)) {
		d.error(at, "Invalid number", "%s is 1, 2, 4, 8 or another power of two up to %d, not %s.", name, high, describe(value))
		return 0
	}
	return n
}

// divisions is a number of steps for all sizes, or an object of sizes with theirs.
func (d *decoder) divisions(attr *hclsyntax.Attribute) []allocator.Division {
	value, _ := d.attr(attr)
	if t := value.Type(); !t.IsObjectType() && !t.IsMapType() {
		if t.IsTupleType() || t.IsListType() || t == cty.Bool {
			d.error(attr.Expr.Range(), "Wrong type",
				"%s is a power of two, or an object of sizes and theirs, such as { \"256MiB\" = 1, \"512MiB\" = 2, \">\" = 4 }, not %s.", attr.Name, describe(value))
			return nil
		}
		return []allocator.Division{{Steps: d.powerOfTwo(attr.Expr, attr.Name, 1, maxSteps)}}
	}
	var list []allocator.Division
	for it := value.ElementIterator(); it.Next(); {
		key, steps := it.Element()
		list = append(list, allocator.Division{
			Size:  d.divisionSize(attr, key.AsString()),
			Steps: d.powerOfTwoIn(steps, attr.Expr.Range(), "The number for "+quoted(key.AsString()), 0, maxSteps),
		})
	}
	if len(list) == 0 || len(list) == 1 && list[0].Size == 0 {
		d.error(attr.Expr.Range(), "Invalid value", "%s names no size: write a power of two alone for all sizes.", attr.Name)
	}
	// The one for all others, of size 0, comes last.
	slices.SortFunc(list, func(a, b allocator.Division) int { return cmp.Compare(a.Size-1, b.Size-1) })
	return list
}

// divisionSize is a size in divisions; 0 is the sign ">", for all others.
func (d *decoder) divisionSize(attr *hclsyntax.Attribute, text string) uint64 {
	if text == ">" {
		return 0
	}
	size, err := parseSize(text)
	switch {
	case err != nil:
		d.error(attr.Expr.Range(), "Invalid size", "%s. For all larger sizes write \">\".", capital(err.Error()))
	case !allocator.PowerOfTwo(size) || size < allocator.MiB || size > maxDivisionSize:
		d.error(attr.Expr.Range(), "Invalid size", "A size in %s is a power of two from 1MiB to %s, not %s.", attr.Name, formatSize(maxDivisionSize), quoted(text))
	}
	return size
}

// allocatorPairs refuses settings that cannot go together, and warns of those that do
// nothing beside each other.
func (d *decoder) allocatorPairs(c content, s *allocator.Settings) {
	async := s.Backend != nil && s.Backend.Value == cudaMallocAsync
	if async {
		d.beside(c, c.attrs["backend"])
	}
	if s.LargeSegmentSize != nil && s.MaxSplitSize != nil && s.MaxSplitSize.Value < s.LargeSegmentSize.Value {
		d.errorAlso(c.attrs["max_split_size"].Expr.Range(), c.attrs["large_segment_size"].Expr.Range(), "Size out of range",
			"max_split_size is at least large_segment_size, which is %s at %s.", formatSize(s.LargeSegmentSize.Value), c.attrs["large_segment_size"].Expr.Range())
	}
	if s.ExpandableSegments != nil && s.ExpandableSegments.Value && !async {
		d.idle(c, s.MaxSplitSize != nil, "max_split_size", "blocks of expandable segments are split whatever their size. Take one of the two out")
		d.idle(c, s.GarbageCollectionThreshold != nil, "garbage_collection_threshold", "it frees no part of expandable segments. Take one of the two out")
	}
	if s.MaxSplitSize == nil {
		d.idle(c, s.MaxNonSplitRounding != nil, "max_non_split_rounding", "it is about blocks that max_split_size keeps whole. Set that too")
	}
	if s.PinnedUseCudaHostRegister == nil || !s.PinnedUseCudaHostRegister.Value {
		d.idle(c, s.PinnedNumRegisterThreads != nil, "pinned_num_register_threads", "the threads are for pinned_use_cuda_host_register. Set that to true")
	}
}

func (d *decoder) idle(c content, isSet bool, name, reason string) {
	if isSet {
		d.warn(c.attrs[name].NameRange, "No effect", "%s has no effect: %s.", name, reason)
	}
}

// beside refuses what the backend cudaMallocAsync ignores.
func (d *decoder) beside(c content, backend *hclsyntax.Attribute) {
	for name, attr := range c.attrs {
		if !d.isSet(attr) || isFalse(d, attr) || !allocator.NativeOnly(allocator.Key(name)) {
			continue
		}
		d.errorAlso(attr.NameRange, backend.NameRange, "Impossible pair",
			"%s does nothing with the backend cudaMallocAsync, which is chosen at %s and ignores it. Take one of the two out.", name, backend.NameRange)
	}
}

func isFalse(d *decoder, attr *hclsyntax.Attribute) bool {
	value, ok := d.attr(attr)
	return ok && value.Type() == cty.Bool && value.False()
}
