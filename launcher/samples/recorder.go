package samples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// level is a resolution in which samples are kept: a file of periods, which becomes the
// older one of two when it is full.
type level struct {
	span float64 // seconds of a period
	full int64   // bytes of a file
}

// levels are what is kept of a run on a host with eight ranks: seconds for a quarter of an
// hour or more, minutes for half a day, hours for months. With more ranks it is less.
var levels = [...]level{{1, 3 << 20}, {60, 3 << 20}, {3600, 6 << 20}}

// name is that of the level's file; the older one has oldEnd too.
func (l level) name() string { return fmt.Sprintf("%gs.jsonl", l.span) }

const oldEnd = ".1"

// flushEvery is how many seconds a period may wait to be written.
const flushEvery = 10

// Recorder keeps samples of the ranks of a host. It is for one goroutine.
type Recorder struct {
	began   float64
	open    [len(levels)]period
	files   [len(levels)]file
	flushed float64
}

// period is one that samples are still added to.
type period struct {
	at    float64
	slots []openSlot // nil: it has not begun
}

type openSlot struct {
	Occupant
	sum
}

// file is one that is written. Periods wait in lines, so that the disk is not asked each
// second.
type file struct {
	level
	path  string
	f     *os.File
	size  int64
	lines []Period
}

// Create begins a folder of samples; began is the time of day, in seconds since 1970.
func Create(folder string, began float64) (*Recorder, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	r := &Recorder{began: began}
	for i, l := range levels {
		r.files[i] = file{level: l, path: filepath.Join(folder, l.name())}
		if err := r.files[i].create(); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Add takes in what the rank in each slot had at a time. A period in which a slot changes
// hands tells of the newer one.
func (r *Recorder) Add(at float64, who []Occupant, values []Values) error {
	for i := range r.open {
		o := &r.open[i]
		start := math.Floor(at/levels[i].span) * levels[i].span
		if o.slots != nil && o.at != start {
			r.finish(i)
		}
		if o.slots == nil {
			o.at, o.slots = start, make([]openSlot, len(who))
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
	if at-r.flushed < min(flushEvery, at/2) { // what is young is looked at the most
		return nil
	}
	r.flushed = at
	return r.Flush()
}

// finish ends the period of a level.
func (r *Recorder) finish(level int) {
	o, f := &r.open[level], &r.files[level]
	p := Period{Began: r.began, At: o.at, Span: levels[level].span}
	for _, s := range o.slots {
		if s.Occupant != Nobody {
			p.Ranks = append(p.Ranks, Slot{s.Occupant, s.summary()})
		}
	}
	if len(p.Ranks) > 0 {
		f.lines = append(f.lines, p)
	}
	o.slots = nil
}

// Flush writes what was taken in, but for periods that are not over.
func (r *Recorder) Flush() error {
	var errs []error
	for i := range r.files {
		errs = append(errs, r.files[i].flush())
	}
	return errors.Join(errs...)
}

// Close writes all that was taken in.
func (r *Recorder) Close() error {
	for i := range r.open {
		if r.open[i].slots != nil {
			r.finish(i)
		}
	}
	failed := r.Flush()
	for i := range r.files {
		if f := r.files[i].f; f != nil {
			failed = errors.Join(failed, f.Close())
		}
	}
	return failed
}

func (f *file) create() (err error) {
	f.size = 0
	f.f, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	return err
}

// flush writes what waits, and makes room once the file is full.
func (f *file) flush() error {
	if len(f.lines) == 0 {
		return nil
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	for _, p := range f.lines {
		if err := to.Encode(p); err != nil {
			return err
		}
	}
	f.lines = nil
	n, err := f.f.Write(text.Bytes())
	if err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	if f.size += int64(n); f.size < f.full {
		return nil
	}
	if err := errors.Join(f.f.Close(), os.Rename(f.path, f.path+oldEnd)); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return f.create()
}
