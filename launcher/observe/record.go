package observe

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is taken in.
const (
	MaxLine     = 4096 // bytes of a line; a path is at most as long
	MaxDatagram = 16 << 10
	maxPhase    = 80 // bytes
	maxName     = 64
	maxValues   = 64 // names per rank
	maxNumber   = 1_000_000_000_000_000
)

// Record keeps the newest that a rank has reported. Its size is bounded.
type Record struct {
	leader  int
	latest  Latest
	epoch   int // the newest
	torch   *torchRecord
	changes uint64
}

// NewRecord makes a record of a rank that has reported nothing. leader is the pid of its leader; torch is set where the
// hook is in its environment.
func NewRecord(leader int, torch bool) *Record {
	r := &Record{leader: leader, epoch: -1, latest: Latest{Progress: Nowhere, First: Nowhere, Furthest: Nowhere}}
	if torch {
		r.torch = newTorchRecord()
	}
	return r
}

// Take takes in a datagram of a process, at so many seconds after the worker's beginning.
func (r *Record) Take(datagram []byte, pid int, at float64) {
	for line := range strings.Lines(string(datagram)) {
		if line = strings.TrimSpace(strings.TrimRight(line, "\x00\n")); line == "" {
			continue
		}
		if err := r.take(line, pid, at); err != nil {
			r.Refuse(fmt.Sprintf("%.80q: %v", line, err))
		}
		r.changes++
	}
}

// Refuse counts a line that was not taken in.
func (r *Record) Refuse(why string) {
	r.latest.Refused++
	r.latest.RefusedWhy = why
	r.changes++
}

// Changes counts what was taken in: if the count is the same, so is Latest.
func (r *Record) Changes() uint64 { return r.changes }

func (r *Record) take(line string, pid int, at float64) error {
	switch {
	case len(line) > MaxLine:
		return fmt.Errorf("a line has at most %d bytes", MaxLine)
	case !utf8.ValidString(line):
		return errors.New("it is no UTF-8")
	case strings.IndexFunc(line, unicode.IsControl) >= 0:
		return errors.New("it holds control characters")
	}
	kind, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch kind {
	case "step", "epoch":
		return r.takeMark(kind, rest, at)
	case "phase":
		if rest == "" || len(rest) > maxPhase {
			return fmt.Errorf("a phase is text of 1 to %d bytes", maxPhase)
		}
		r.latest.Phase, r.latest.PhaseAt = rest, at
	case "value":
		return r.takeValue(rest)
	case "checkpoint":
		if !filepath.IsAbs(rest) {
			return errors.New("a checkpoint is an absolute path")
		}
		r.latest.Checkpoint, r.latest.CheckpointAt = rest, at
	case "torch":
		return r.torch.take(rest, pid, at)
	default:
		return errors.New("the first word is none of step, epoch, phase, value and checkpoint")
	}
	return nil
}

func number(word string) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > maxNumber {
		return 0, fmt.Errorf("%.40q is no whole number from 0 on", word)
	}
	return n, nil
}

func (r *Record) takeMark(kind, rest string, at float64) error {
	n, err := number(rest)
	if err != nil {
		return err
	}
	m := Mark{r.epoch, n}
	if kind == "epoch" {
		r.epoch, m = n, Mark{n, -1}
	}
	l := &r.latest
	l.Progress, l.ProgressAt = m, at
	if !l.First.Known() {
		l.First = m
	}
	if !l.Furthest.Known() || m.Compare(l.Furthest) > 0 {
		l.Furthest, l.FurthestAt = m, at
	}
	return nil
}

func (r *Record) takeValue(rest string) error {
	name, word, _ := strings.Cut(rest, " ")
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name of a value has 1 to %d bytes", maxName)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
	if err != nil && !math.IsInf(v, 0) { // what is too large for a float64 is infinite
		return fmt.Errorf("%.40q is no number", word)
	}
	if _, known := r.latest.Values[name]; !known && len(r.latest.Values) >= maxValues {
		return fmt.Errorf("a rank has at most %d values", maxValues)
	}
	if r.latest.Values == nil {
		r.latest.Values = map[string]Value{}
	}
	r.latest.Values[name] = Value(v)
	return nil
}

// Latest is the newest of everything; it shares nothing with the record.
func (r *Record) Latest() *Latest {
	l := r.latest
	l.Values = maps.Clone(r.latest.Values)
	if r.torch != nil {
		l.Torch = r.torch.latest(r.leader)
	}
	return &l
}

// Seen reports whether a process with the hook has begun, or none is expected.
func (r *Record) Seen() bool { return r.torch == nil || r.torch.State != TorchNotSeen }

// Empty reports whether nothing was reported.
func (l *Latest) Empty() bool {
	return l == nil || !l.Progress.Known() && l.Phase == "" && len(l.Values) == 0 && l.Checkpoint == "" &&
		l.Torch == nil && l.Refused == 0
}
