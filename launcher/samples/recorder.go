package samples

import (
	"errors"
	"math"
)

// Level is a resolution in which samples are kept.
type Level struct {
	Span float64 `json:"span_s"` // seconds of a period; of the last level, when it begins
	Kept int     `json:"kept"`   // periods that are kept
}

// levels are what is kept of a run: seconds for ten minutes, ten seconds for three hours,
// minutes for a day, and all of it in periods that double as often as they fill their slots.
var levels = []Level{{1, 600}, {10, 1080}, {60, 1440}, {600, 1024}}

// Occupant is who is in a slot of a host: a rank in an attempt.
type Occupant struct{ Rank, Attempt int }

// Nobody is in a slot where no rank runs.
var Nobody = Occupant{-1, 0}

// Bucket is a period.
type Bucket struct {
	At, Span float64 // its beginning, and how many seconds it stands for
	Slots    []Slot
}

// Slot is what was measured in a slot: of the rank that was in it at the end of the period.
type Slot struct {
	Occupant
	Summary
}

// open is a period that samples are still added to.
type open struct {
	at, span float64
	slots    []openSlot // nil: there is none
}

type openSlot struct {
	Occupant
	sum
}

func (o *open) bucket() Bucket {
	b := Bucket{At: o.at, Span: o.span}
	for i := range o.slots {
		b.Slots = append(b.Slots, Slot{o.slots[i].Occupant, o.slots[i].summary()})
	}
	return b
}

// Recorder keeps samples of the ranks of a host. It is for one goroutine.
type Recorder struct {
	file  *file
	slots int
	open  []open // of each level
}

// Create begins a file for a host on which so many ranks run at once; began is the time of
// day, in seconds since 1970.
func Create(path string, slots int, began float64) (*Recorder, error) {
	f, err := create(path, Header{Version: 1, Began: began, Slots: slots, Metrics: names[:], Levels: levelsFor(slots)})
	if err != nil {
		return nil, err
	}
	r := &Recorder{file: f, slots: slots, open: make([]open, len(f.header.Levels))}
	for i, l := range f.header.Levels {
		r.open[i].span = l.Span
	}
	return r, nil
}

// Add takes in what the rank in each slot had at a time. A period in which a slot changes
// hands tells of the newer one.
func (r *Recorder) Add(at float64, who []Occupant, values []Values) error {
	for i := range r.open {
		o := &r.open[i]
		start := math.Floor(at/o.span) * o.span
		for o.slots != nil && o.at != start {
			if err := r.finish(i); err != nil {
				return err
			}
			start = math.Floor(at/o.span) * o.span
		}
		if o.slots == nil {
			o.at, o.slots = start, make([]openSlot, r.slots)
			for slot := range o.slots {
				o.slots[slot] = openSlot{who[slot], newSum()}
			}
		}
		for slot := range o.slots {
			s := &o.slots[slot]
			if s.Occupant != who[slot] {
				if who[slot] == Nobody {
					continue
				}
				*s = openSlot{who[slot], newSum()}
			}
			s.add(values[slot])
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
	o.slots = nil
	return nil
}

// Flush writes what was taken in, but for periods that are not over.
func (r *Recorder) Flush() error { return r.file.flush() }

// Close writes all that was taken in.
func (r *Recorder) Close() error {
	var failed error
	for i := range r.open {
		for failed == nil && r.open[i].slots != nil {
			failed = r.finish(i)
		}
	}
	return errors.Join(failed, r.file.flush(), r.file.f.Close())
}

const (
	// mostBytes bounds a file: hosts with many slots keep fewer periods.
	mostBytes  = 8 << 20
	fewestKept = 32
)

func levelsFor(slots int) []Level {
	size, own := 0, append([]Level{}, levels...)
	for _, l := range own {
		size += l.Kept * recordSize(slots)
	}
	for i := range own {
		if size > mostBytes {
			own[i].Kept = max(fewestKept, own[i].Kept*(mostBytes>>10)/(size>>10))
		}
	}
	return own
}
