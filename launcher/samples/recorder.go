package samples

import (
	"errors"
	"math"
)

// Level is a resolution in which samples are kept.
type Level struct {
	Span  float64 `json:"span_s"` // seconds of a period; of the last level, when it begins
	Slots int     `json:"slots"`  // periods that are kept
}

// levels are what is kept of a run: seconds for ten minutes, ten seconds for three hours,
// minutes for a day, and all of it in periods that double as often as they fill their slots.
var levels = []Level{{1, 600}, {10, 1080}, {60, 1440}, {600, 1024}}

// Bucket is a period.
type Bucket struct {
	At      float64   `json:"at_s"`   // its beginning
	Span    float64   `json:"span_s"` // seconds that it stands for
	Attempt int       `json:"attempt"`
	Ranks   []Summary `json:"ranks"` // in the order of the file's ranks
}

// open is a period that samples are still added to.
type open struct {
	at, span float64
	attempt  int
	ranks    []sum // nil: there is none
}

func (o *open) bucket() Bucket {
	b := Bucket{At: o.at, Span: o.span, Attempt: o.attempt}
	for i := range o.ranks {
		b.Ranks = append(b.Ranks, o.ranks[i].summary())
	}
	return b
}

// Recorder keeps samples of the ranks of a host. It is for one goroutine.
type Recorder struct {
	file  *file
	ranks int
	open  []open // of each level
}

// Create begins a file for these ranks; began is the time of day, in seconds since 1970.
func Create(path string, ranks []int, began float64) (*Recorder, error) {
	f, err := create(path, Header{Version: 1, Began: began, Ranks: ranks, Metrics: names[:], Levels: levelsFor(len(ranks))})
	if err != nil {
		return nil, err
	}
	r := &Recorder{file: f, ranks: len(ranks), open: make([]open, len(f.header.Levels))}
	for i, l := range f.header.Levels {
		r.open[i].span = l.Span
	}
	return r, nil
}

// Add takes in what the ranks had at a time, in the order of the file's ranks.
func (r *Recorder) Add(at float64, attempt int, values []Values) error {
	for i := range r.open {
		o := &r.open[i]
		start := math.Floor(at/o.span) * o.span
		for o.ranks != nil && (o.attempt != attempt || o.at != start) {
			if err := r.finish(i); err != nil {
				return err
			}
			start = math.Floor(at/o.span) * o.span
		}
		if o.ranks == nil {
			o.at, o.attempt, o.ranks = start, attempt, make([]sum, r.ranks)
			for rank := range o.ranks {
				o.ranks[rank] = newSum()
			}
		}
		for rank := range o.ranks {
			o.ranks[rank].add(values[rank])
		}
	}
	return r.file.flushLater(at)
}

// finish puts a level's period into the file. Where the last level has no slot left its
// periods are made twice as long, and this one with them, which then may go on.
func (r *Recorder) finish(level int) error {
	o := &r.open[level]
	if level == len(r.open)-1 && r.file.isFull(level) {
		o.span *= 2
		o.at = math.Floor(o.at/o.span) * o.span
		return r.file.thin(level)
	}
	r.file.push(level, o.bucket())
	o.ranks = nil
	return nil
}

// Flush writes what was taken in, but for periods that are not over.
func (r *Recorder) Flush() error { return r.file.flush() }

// Close writes all that was taken in.
func (r *Recorder) Close() error {
	var failed error
	for i := range r.open {
		for failed == nil && r.open[i].ranks != nil {
			failed = r.finish(i)
		}
	}
	return errors.Join(failed, r.file.flush(), r.file.f.Close())
}

// Path is where the file is.
func (r *Recorder) Path() string { return r.file.f.Name() }

// Largest is how large a file for so many ranks may become, in bytes.
func Largest(ranks int) int64 {
	return Header{Ranks: make([]int, ranks), Levels: levelsFor(ranks)}.size()
}

const (
	// mostBytes bounds a file: hosts with many ranks keep fewer periods.
	mostBytes  = 8 << 20
	fewestSlot = 64
)

func levelsFor(ranks int) []Level {
	size, own := 0, append([]Level{}, levels...)
	for _, l := range own {
		size += l.Slots * recordSize(ranks)
	}
	for i := range own {
		if size > mostBytes {
			own[i].Slots = max(fewestSlot, own[i].Slots*(mostBytes>>10)/(size>>10))
		}
	}
	return own
}
