package output

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// figures are the numbers of an allocator's message. What the message lacks is not in
// the map.
type figures struct {
	n         map[string]float64
	processes map[int]float64 // by pid, as the message has them
	bogus     bool            // it had a number that cannot be
	old       bool            // it is of PyTorch up to 2.0, which names no process
}

// GiB and MiB are what allocators count in.
const (
	mib = 1 << 20
	gib = 1 << 30
	// Slack is what two decimals of a GiB leave open.
	Slack = gib / 200
)

// A size, before or after the words that say what it is of.
var (
	sizeBefore = pattern.New(`([0-9]{1,18}(?:\.[0-9]{1,6})?) ?(bytes|[KMGT]iB|B)$`)
	sizeAfter  = pattern.New(`^([0-9]{1,18}(?:\.[0-9]{1,6})?) ?(bytes|[KMGT]iB|B)\b`)
)

// sized are the words beside the sizes of a message. PyTorch's has brackets up to 2.0, and
// since 2.1 (with its "capacty") whole sentences, any of which may be missing.
var sized = []struct {
	name   string
	before bool // the size stands before the words
	words  []string
}{
	{verdict.NumRequested, false, []string{"Tried to allocate ", "rying to allocate ", "Failed to allocate request for ", "allocating "}},
	{verdict.NumTotal, false, []string{"total capacity of ", "total capacty of "}},
	{verdict.NumTotal, true, []string{" total capacity;"}},
	{verdict.NumFree, true, []string{" is free", " free;"}},
	{verdict.NumAllocated, true, []string{" already allocated", " is allocated by PyTorch"}},
	{verdict.NumUnallocated, true, []string{" is reserved by PyTorch but unallocated"}},
	{verdict.NumReserved, true, []string{" reserved in total"}},
	{verdict.NumCached, true, []string{" cached"}},
	{verdict.NumSelf, false, []string{"this process has "}},
	{verdict.NumAllowed, true, []string{" allowed"}},
}

// longestSize is more than a size takes.
const longestSize = 40

// sizeBeside is the size beside the words.
func sizeBeside(text, words string, before bool) (float64, bool) {
	at := strings.Index(text, words)
	if at < 0 {
		return 0, false
	}
	end := at + len(words)
	m := sizeAfter.FindStringSubmatch(text[end:min(len(text), end+longestSize)])
	if before {
		m = sizeBefore.FindStringSubmatch(text[max(0, at-longestSize):at])
	}
	if m == nil {
		return 0, false
	}
	return bytesOf(m[1], m[2]), true
}

var (
	oldDeviceForm = pattern.New(`\((?:GPU|XPU) ([0-9]{1,3});`)
	newDeviceForm = pattern.New(`(?:GPU|XPU) ([0-9]{1,3}) has a total capac`)
	processForm   = pattern.New(`Process ([0-9]{1,10}) has ([0-9]{1,18}(?:\.[0-9]{1,6})?) ?(bytes|[KMGT]iB|B) memory in use`)
	shapeForm     = pattern.New(`shape\[([0-9,]{1,200})\] and type (\w{1,20})`)
	deviceForm    = pattern.New(`device:GPU:([0-9]{1,3})`)
)

// readFigures reads a message that begins with text, up to where the next one begins.
func readFigures(text string) figures {
	if again := strings.Index(text[min(len(text), 40):], "Tried to allocate"); again >= 0 {
		text = text[:40+again]
	}
	f := figures{n: map[string]float64{}, processes: map[int]float64{}}
	for _, s := range sized {
		for _, words := range s.words {
			if n, ok := sizeBeside(text, words, s.before); ok {
				f.n[s.name] = n
				break
			}
		}
	}
	for _, form := range []*pattern.Pattern{oldDeviceForm, newDeviceForm, deviceForm} {
		if m := form.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			f.n[verdict.NumGPU] = float64(n)
			break
		}
	}
	for _, m := range processForm.FindAllStringSubmatch(text, 64) {
		pid, _ := strconv.Atoi(m[1])
		f.processes[pid] = bytesOf(m[2], m[3])
	}
	f.shape(text)
	f.dropBogus()
	f.complete()
	return f
}

// shape is TensorFlow's way of saying how much was asked for.
func (f *figures) shape(text string) {
	m := shapeForm.FindStringSubmatch(text)
	if _, known := f.n[verdict.NumRequested]; known || m == nil {
		return
	}
	size := widths[m[2]]
	for dimension := range strings.SplitSeq(m[1], ",") {
		n, err := strconv.ParseFloat(dimension, 64)
		if err != nil {
			return
		}
		size *= n
	}
	if size > 0 && size < 1<<60 {
		f.n[verdict.NumRequested] = size
	}
}

// widths are TensorFlow's types in bytes.
var widths = map[string]float64{
	"float": 4, "double": 8, "half": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}

func bytesOf(number, unit string) float64 {
	n, _ := strconv.ParseFloat(number, 64) // the form has nothing else
	return math.Floor(n * map[string]float64{"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": mib, "GiB": gib, "TiB": 1 << 40}[unit])
}

// dropBogus throws away what no device can hold: where the driver does not know a
// process's memory (WSL, WDDM), it says 2^64 - 1.
func (f *figures) dropBogus() {
	total, known := f.n[verdict.NumTotal]
	for _, name := range []string{verdict.NumSelf, verdict.NumFree, verdict.NumAllocated, verdict.NumReserved} {
		if size := f.n[name]; known && size > 4*total || size >= 1<<60 {
			delete(f.n, name)
			f.bogus = true
		}
	}
	for pid, size := range f.processes {
		if known && size > 4*total || size >= 1<<60 {
			delete(f.processes, pid)
			f.bogus = true
		}
	}
}

// complete adds what follows from other numbers.
func (f *figures) complete() {
	allocated, known := f.n[verdict.NumAllocated]
	if !known {
		return
	}
	if reserved, ok := f.n[verdict.NumReserved]; ok {
		f.old = true
		f.n[verdict.NumUnallocated] = max(0, reserved-allocated)
	} else if cached, ok := f.n[verdict.NumCached]; ok {
		f.old = true
		f.n[verdict.NumUnallocated] = cached
		f.n[verdict.NumReserved] = allocated + cached
	} else if unallocated, ok := f.n[verdict.NumUnallocated]; ok {
		f.n[verdict.NumReserved] = allocated + unallocated
	}
	f.findSelf()
}

// Bounds of what a process has on a device besides its allocator's memory: its context,
// and with several GPUs NCCL's and cuBLAS's buffers.
const (
	smallContext = 614 * mib // 0.6 GiB
	largeContext = 17 * gib / 10
)

// findSelf tells which of the processes is the failing one: within a pid namespace
// PyTorch does not find its own pid among the host's, and lists itself with the others.
func (f *figures) findSelf() {
	if _, known := f.n[verdict.NumSelf]; known {
		return
	}
	reserved := f.n[verdict.NumReserved]
	self, best := 0, math.Inf(1)
	for pid, size := range f.processes {
		beyond := size - reserved
		if beyond >= -Slack && beyond <= 2*gib && (beyond < best || beyond == best && pid < self) {
			self, best = pid, beyond
		}
	}
	if self != 0 {
		f.n[verdict.NumSelf] = f.processes[self]
		f.n[fmt.Sprintf("process_%d", self)] = f.processes[self]
		delete(f.processes, self)
	}
}

// others is what other processes have on the device, by the message.
func (f figures) others() float64 {
	sum := 0.0
	for _, size := range f.processes {
		sum += size
	}
	return sum
}

// unaccounted stands for that in messages up to PyTorch 2.0, which name no process: what
// is neither free nor the allocator's, less one context. Large jobs on large cards have
// large contexts.
func (f figures) unaccounted() float64 {
	total, okTotal := f.n[verdict.NumTotal]
	free, okFree := f.n[verdict.NumFree]
	reserved, okReserved := f.n[verdict.NumReserved]
	if !f.old || !okTotal || !okFree || !okReserved {
		return 0
	}
	context := min(largeContext, max(smallContext, total*55/1000))
	return max(0, total-free-reserved-context)
}

// into puts the figures where the report has them.
func (f figures) into(v *verdict.Verdict) {
	for name, n := range f.n {
		v.Numbers[name] = n
	}
	for pid, size := range f.processes {
		v.Numbers[fmt.Sprintf("process_%d", pid)] = size
	}
	if others := f.others(); others > 0 {
		v.Numbers[verdict.NumOthers] = others
	}
}

// Shares of a device that decide.
const (
	// many times the device is no lack of memory but a wrong shape.
	absurd = 8
	// least of the device that must lie free in the pool to speak of fragmentation: below,
	// remainders of blocks add up to more than a small request in any full pool.
	leastPool = 100
)

// oomOf is the verdict on an allocator's message by its figures alone.
func oomOf(f figures) verdict.Verdict {
	v := oomClass(f)
	f.into(&v)
	return v
}

func oomClass(f figures) verdict.Verdict {
	requested, asked := f.n[verdict.NumRequested]
	total, sized := f.n[verdict.NumTotal]
	if allowed, ok := f.n[verdict.NumAllowed]; ok && sized {
		total = min(total, allowed)
	}
	free, pool, others := f.n[verdict.NumFree], f.n[verdict.NumUnallocated], f.others()+f.unaccounted()
	switch {
	case !asked:
		return verdict.Of(class.OOMUnknown, verdict.Likely)
	case !sized: // JAX and TensorFlow name no device's size
		v := verdict.Of(class.OOMCapacity, verdict.Likely)
		v.Message = fmt.Sprintf("the GPU has no %s left for what the program wants", text.Size(requested, 2))
		return v
	case requested > absurd*total:
		v := verdict.Of(class.UserError, verdict.Likely)
		v.Message = fmt.Sprintf("the program asked for %s on a GPU of %s: a wrong shape rather than a lack of memory, it never fits", text.Size(requested, 2), text.Size(total, 2))
		return v
	case requested > total:
		v := verdict.Of(class.OOMCapacity, verdict.Certain)
		v.Message = fmt.Sprintf("the program asked for %s in one piece on a GPU of %s: that never fits", text.Size(requested, 2), text.Size(total, 2))
		return v
	case f.bogus && free >= requested:
		v := verdict.Of(class.OOMUnknown, verdict.Guess)
		v.Message = fmt.Sprintf("the driver refused %s although it says that %s are free: a limit of the driver or of a virtual machine", text.Size(requested, 2), text.Size(free, 2))
		return v
	case pool+Slack >= requested && pool >= requested-Slack && pool >= total/leastPool:
		return fragmented(f, requested, pool, total, others)
	case others > 0 && free+others+Slack >= requested && others > Slack:
		return foreign(f, requested, free, others)
	}
	return full(requested, free, pool, total, f)
}

func fragmented(f figures, requested, pool, total, others float64) verdict.Verdict {
	v := verdict.Of(class.OOMFragmentation, verdict.Likely)
	v.Message = fmt.Sprintf("%s is fragmented: the allocator holds %s that nothing uses, but not %s in one piece", f.device("memory of the GPU", "memory of GPU %d"), text.Size(pool, 2), text.Size(requested, 2))
	if pool < total/20 {
		v.AddNote(fmt.Sprintf("only %.0f %% of the GPU lie free in the pool: what helps for now may not help for long", 100*pool/total))
	}
	if others >= requested {
		v.AddNote(fmt.Sprintf("other processes hold %s of the same GPU", text.Size(others, 2)))
	}
	return v
}

func foreign(f figures, requested, free, others float64) verdict.Verdict {
	v := verdict.Of(class.OOMForeign, verdict.Likely)
	v.Message = fmt.Sprintf("%s is used by somebody else too: other processes hold %s, %s are free, and %s were wanted",
		f.device("the GPU", "GPU %d"), text.Size(others, 2), text.Size(free, 2), text.Size(requested, 2))
	if f.others() == 0 {
		v.Confidence = verdict.Guess
		v.AddNote("this version of PyTorch names no other processes: theirs is what is neither free nor its own, less one context")
	}
	for _, pid := range slices.Sorted(maps.Keys(f.processes)) {
		v.AddEvidence(fmt.Sprintf("process %d has %s", pid, text.Size(f.processes[pid], 2)))
	}
	return v
}

// full is a device that is simply too small for the program. Where what is free and what
// the pool holds would do together, one setting may still help.
func full(requested, free, pool, total float64, f figures) verdict.Verdict {
	v := verdict.Of(class.OOMCapacity, verdict.Certain)
	v.Message = fmt.Sprintf("%s is too small for the program: it wanted %s more, with %s of %s free", f.device("the GPU", "GPU %d"), text.Size(requested, 2), text.Size(free, 2), text.Size(total, 2))
	if allocated, known := f.n[verdict.NumAllocated]; known {
		v.Message += fmt.Sprintf(" and %s in its tensors", text.Size(allocated, 2))
	}
	if pool+free+Slack >= requested && pool > Slack && free > Slack {
		v.Restart, v.Confidence = class.WithConfig, verdict.Likely
		v.AddNote(fmt.Sprintf("%s in the pool and %s free would do together: expandable_segments may get by with that", text.Size(pool, 2), text.Size(free, 2)))
	}
	return v
}

// device names the device where the message does.
func (f figures) device(without, with string) string {
	if gpu, ok := f.n[verdict.NumGPU]; ok {
		return fmt.Sprintf(with, int(gpu))
	}
	return without
}
