package samples

import (
	"fmt"
	"math"
	"slices"
)

// Growth is memory that has risen steadily for long.
type Growth struct {
	Rank   int     `json:"rank"`
	Metric string  `json:"metric"` // which number rises
	Kind   string  `json:"kind"`   // one of Kind…
	Slope  float64 `json:"bytes_per_hour"`
	From   float64 `json:"from"` // bytes at the beginning and end of the time looked at
	To     float64 `json:"to"`
	Hours  float64 `json:"hours"`
	// FullIn is how many hours are left until the device is full, if it goes on so; 0: that
	// is not known.
	FullIn float64 `json:"full_in_h,omitempty"`
}

// What growth may be, by which of the numbers rises.
const (
	KindTensors = "tensors" // allocated: the program keeps more and more tensors
	KindCache   = "cache"   // reserved, but not allocated: the allocator's cache, cut to pieces
	KindOutside = "outside" // the process, but not reserved: NCCL's buffers, libraries, contexts
	KindDevice  = "device"  // the process, and what torch says is not known
	KindForeign = "foreign" // the device, but not the rank's processes
	KindHost    = "host"    // resident memory
)

// Thresholds. Growth is judged over at least an hour after the warm-up, in windows; it has
// to be there in most of them and to go on: what levels off, comes back or was one step is
// none. What begins late is found in the newest hours: there it also has to lead to where
// the number has not been before, or the rising half of what goes up and down would do.
const (
	// WarmUp are the first seconds of an attempt, of which nothing is concluded.
	WarmUp      = 600.0
	shortest    = 3600.0
	windows     = 12
	maxMissing  = 2 // windows without a sample
	fewestRises = 8 // of the steps from a window to the next
	leastThird  = 0.25
	leastBytes  = 64 << 20
	leastShare  = 0.01 // of what there was at first
	stepBytes   = 1 << 20
)

// lateSpans are the newest seconds that are judged by themselves, the longest first.
var lateSpans = []float64{14 * 24 * 3600, 5 * 24 * 3600, 40 * 3600, 16 * 3600, 7 * 3600, 3 * 3600}

// trend is how the floor of a number has moved.
type trend struct{ slope, from, to, hours float64 }

// rising finds a steady rise: of the smallest values, for what is freed again and again, as
// in a saw-tooth or by evaluations in between, takes nothing away for good.
func rising(points []Point) (t trend, is bool) {
	if len(points) == 0 {
		return t, false
	}
	last := points[len(points)-1]
	begin, end := points[0].At+WarmUp, last.At+last.Span
	if end-begin < shortest {
		return t, false
	}
	if t, is = risingIn(floors(points, begin, end, windows), end-begin); is {
		return t, true
	}
	for _, span := range lateSpans {
		if span > end-begin {
			continue
		}
		width := span / windows
		earlier := math.Floor((end - begin - span) / width) // as wide as the windows that are judged
		floor := floors(points, end-span-earlier*width, end, int(earlier)+windows)
		if t, is = risingIn(floor[int(earlier):], span); is && t.to-t.from > 2*(highest(floor[:int(earlier)])-t.from) {
			return t, true
		}
	}
	return t, false
}

// highest is the largest of values that are known.
func highest(values []float64) float64 {
	most := math.Inf(-1)
	for _, v := range values {
		if !math.IsInf(v, 1) {
			most = max(most, v)
		}
	}
	return most
}

// risingIn judges the floors of as many seconds.
func risingIn(floor []float64, span float64) (t trend, is bool) {
	var known []int
	for i, v := range floor {
		if !math.IsInf(v, 1) {
			known = append(known, i)
		}
	}
	if len(known) < windows-maxMissing {
		return t, false
	}
	rises := 0
	for i, w := range known[1:] {
		if floor[w] > floor[known[i]]+stepBytes {
			rises++
		}
	}
	first, middle, third := median(floor[:4]), median(floor[4:8]), median(floor[8:])
	whole := third - first
	if rises < fewestRises-(windows-len(known)) || whole < max(leastBytes, leastShare*first)/1.5 ||
		middle-first < leastThird*whole || third-middle < leastThird*whole {
		return t, false
	}
	hours := span / 3600
	slope := theilSen(floor, known) * windows / hours
	return trend{slope, third - slope*hours*2/3, third, hours}, slope > 0
}

// floors are the smallest values of each of so many windows between two times.
func floors(points []Point, begin, end float64, count int) []float64 {
	floor := slices.Repeat([]float64{math.Inf(1)}, count)
	for _, p := range points {
		if p.At < begin {
			continue
		}
		w := min(count-1, int((p.At-begin)/(end-begin)*float64(count)))
		floor[w] = min(floor[w], p.Min)
	}
	return floor
}

func median(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return math.IsInf(v, 1) || math.IsNaN(v) })
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	return known[len(known)/2]
}

// theilSen is the median slope, per window, of all pairs of windows.
func theilSen(floor []float64, known []int) float64 {
	var slopes []float64
	for i, a := range known {
		for _, b := range known[i+1:] {
			slopes = append(slopes, (floor[b]-floor[a])/float64(b-a))
		}
	}
	return median(slopes)
}

// Growing finds what has grown of a rank in an attempt. total is its device's memory, 0 if
// that is not known. Of what rises on a device one thing is told: the innermost.
func (s *Series) Growing(attempt, rank int, total float64) []Growth {
	who := Occupant{rank, attempt}
	is := map[Metric]bool{}
	trends := map[Metric]trend{}
	known := map[Metric]bool{}
	for _, m := range []Metric{DeviceUsed, Process, RSS, Allocated, Reserved} {
		points := s.points(who, m)
		known[m] = len(points) > 0
		trends[m], is[m] = rising(points)
	}
	var found []Growth
	tell := func(m Metric, kind string) {
		t := trends[m]
		g := Growth{Rank: rank, Metric: names[m], Kind: kind, Slope: t.slope, From: t.from, To: t.to, Hours: t.hours}
		if used := lastOf(s.points(who, DeviceUsed)); m != RSS && total > 0 && used > 0 && total > used {
			g.FullIn = (total - used) / t.slope
		}
		found = append(found, g)
	}
	switch {
	case is[Allocated]:
		tell(Allocated, KindTensors)
	case is[Reserved]:
		tell(Reserved, KindCache)
	case is[Process] && known[Reserved]:
		tell(Process, KindOutside)
	case is[Process]:
		tell(Process, KindDevice)
	case is[DeviceUsed] && known[Process]:
		tell(DeviceUsed, KindForeign)
	case is[DeviceUsed] && known[Reserved]:
		tell(DeviceUsed, KindOutside)
	case is[DeviceUsed]:
		tell(DeviceUsed, KindDevice)
	}
	if is[RSS] {
		tell(RSS, KindHost)
	}
	return found
}

func lastOf(points []Point) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1].Max
}

// kinds say what growth may be and what to do.
var kinds = map[string]struct{ what, may, do string }{
	KindTensors: {"the memory of torch's live tensors", "tensors that the program keeps without need: a loss that is summed up with its graph, outputs in a list, a cache",
		"add .item() or .detach() to what is kept, and look at torch.cuda.memory_snapshot() of two times"},
	KindCache: {"what torch's allocator has reserved", "its cache, which changing shapes cut to pieces, for live tensors have not grown",
		"set allocator { expandable_segments = true } or a garbage_collection_threshold, or pad to fixed shapes"},
	KindOutside: {"the memory of its device outside torch's allocator", "new NCCL communicators and their buffers, a library's workspace, or a leak outside torch",
		"look for process groups or CUDA streams that are made again and again"},
	KindDevice: {"the memory that it holds of its device", "torch's cache, NCCL's buffers, or a leak: which of them, only torch's own numbers could tell",
		"observe { torch = true } in the job file has torch tell them"},
	KindForeign: {"the memory in use of its device beside its own processes", "somebody else's process, which takes more and more",
		"see muster top for who holds it"},
	KindHost: {"the resident memory of its processes on the host", "a leak in the program or its data loaders, a cache of data in memory, or pinned buffers",
		"look at the loaders' workers (copy-on-write of Python objects) and at what is kept between steps"},
}

// Words say what has grown and what it may be, and what to do about it.
func (g Growth) Words() (message, fix string) {
	k := kinds[g.Kind]
	message = fmt.Sprintf("rank %d: %s has risen steadily for %s, by %s an hour, from %s to %s: perhaps %s", g.Rank, k.what,
		hoursWord(g.Hours), Size(g.Slope), Size(g.From), Size(g.To), k.may)
	if g.FullIn > 0 {
		message += fmt.Sprintf("; at this rate the device is full in %s", hoursWord(g.FullIn))
	}
	return message, k.do
}

func hoursWord(h float64) string {
	switch {
	case h < 2:
		return fmt.Sprintf("%.0f min", h*60)
	case h < 100:
		return fmt.Sprintf("%.0f h", h)
	}
	return fmt.Sprintf("%.0f days", h/24)
}

// Size is an amount of memory for people.
func Size(bytes float64) string {
	switch {
	case bytes >= 100<<30:
		return fmt.Sprintf("%.0f GiB", bytes/(1<<30))
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", bytes/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", bytes/(1<<20))
}
