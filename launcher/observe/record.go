package observe

import (
	"fmt"
	"maps"
	"strings"
)

// Record keeps the newest that a rank has told. Its size is bounded, whatever is told.
type Record struct {
	leader  int
	latest  Latest
	epoch   int // the newest
	torch   *torchRecord
	changes uint64
}

// notSeen is why there are no numbers as long as no process has come with the hook.
const notSeen = "muster's hook has not been seen: no Python has been started yet, or with -S, -I or -E, or with another PYTHONPATH"

// NewRecord makes a record of a rank that has told nothing. leader is the pid of its
// leader; torch is set where the hook is in its environment.
func NewRecord(leader int, torch bool) *Record {
	r := &Record{leader: leader, epoch: -1, latest: Latest{Progress: Nowhere, First: Nowhere, Furthest: Nowhere}}
	if torch {
		r.torch = &torchRecord{seen: process{state: TorchNotSeen, why: notSeen}, processes: map[int]*process{}}
	}
	return r
}

// Take takes in a datagram of a process, at so many seconds after the worker's beginning.
func (r *Record) Take(datagram []byte, pid int, at float64) {
	for line := range strings.Lines(string(datagram)) {
		if line = strings.TrimSpace(strings.TrimRight(line, "\x00\n")); line == "" {
			continue
		}
		m, err := parse(line)
		if err == nil {
			err = r.put(m, pid, at)
		}
		if err != nil {
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

// Changes counts what was taken in: who has seen a number need not look again.
func (r *Record) Changes() uint64 { return r.changes }

func (r *Record) put(m message, pid int, at float64) error {
	l := &r.latest
	switch m.kind {
	case "epoch":
		r.epoch = m.number
		r.reach(Mark{m.number, -1}, at)
	case "step":
		r.reach(Mark{r.epoch, m.number}, at)
	case "phase":
		l.Phase, l.PhaseAt = m.text, at
	case "value":
		return r.value(m)
	case "checkpoint":
		l.Checkpoint, l.CheckpointAt = m.text, at
	case "torch":
		if r.torch == nil {
			return fmt.Errorf("the job file does not ask for it: observe { torch = true }")
		}
		return r.torch.take(m.torch, pid, at)
	}
	return nil
}

func (r *Record) reach(m Mark, at float64) {
	l := &r.latest
	l.Progress, l.ProgressAt = m, at
	if !l.First.Known() {
		l.First = m
	}
	if !l.Furthest.Known() || m.Compare(l.Furthest) > 0 {
		l.Furthest, l.FurthestAt = m, at
	}
}

func (r *Record) value(m message) error {
	if _, known := r.latest.Values[m.name]; !known && len(r.latest.Values) >= maxValues {
		return fmt.Errorf("a rank has at most %d values", maxValues)
	}
	if r.latest.Values == nil {
		r.latest.Values = map[string]Value{}
	}
	r.latest.Values[m.name] = Value(m.value)
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

// Seen is whether a process with the hook has begun, or none is waited for.
func (r *Record) Seen() bool { return r.torch == nil || r.torch.seen.state != TorchNotSeen }

// Empty is whether nothing was told.
func (l *Latest) Empty() bool {
	return l == nil || !l.Progress.Known() && l.Phase == "" && len(l.Values) == 0 && l.Checkpoint == "" && l.Torch == nil && l.Refused == 0
}
