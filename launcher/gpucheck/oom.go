package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// oomKinds are the ways in which oom.py runs out of memory, with the class of each.
var oomKinds = []struct{ name, class string }{
	{"capacity", "oom.capacity"},
	{"fragmentation", "oom.fragmentation"},
	{"foreign", "oom.foreign_process"},
}

// holderShare is how much of a GPU somebody else holds, and wanted how much a rank of the
// same GPU asks for then, of its memory.
const (
	holderShare = 0.6
	wantedShare = 0.6
)

// near is by how much sizes that several programs tell may differ: contexts, what the
// driver keeps for itself, and two decimals of a GiB.
const (
	nearShare = 0.02
	nearMiB   = 1024.0
)

// memory is what oom.py says of torch when its memory ran out. Sizes are in bytes.
type memory struct {
	Requested, Total, Allocated, Reserved float64
}

// told is what a report has of a cause.
type told struct {
	Class, Message string
	Evidence       []string
	Numbers        map[string]float64
}

// checkOOM has torch run out of memory in one way.
func checkOOM(name, class string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		if err := s.torchHere(ctx); err != nil {
			return err
		}
		path, err := s.script("oom.py")
		if err != nil {
			return err
		}
		command := []string{s.python, path, name}
		if name == "foreign" {
			return s.besideHolder(ctx, "torch-oom-foreign", command, class)
		}
		cause, o, err := s.fails(ctx, s.oomJob("torch-oom-"+name, command))
		if err != nil {
			return err
		}
		return s.sameOOM(cause, class, o)
	}
}

// checkOOMByOther has a worker without torch run out of memory beside somebody else's
// process. It says no numbers: what decides is what NVML shows.
func checkOOMByOther(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	return s.besideHolder(ctx, "oom-foreign", s.argv(mebibytesOf(s.usable[0], wantedShare), "never"), "oom.foreign_process")
}

// mebibytesOf is a share of a GPU's memory, as a worker takes it.
func mebibytesOf(r row, share float64) string {
	return fmt.Sprintf("%dMiB", int(float64(r.Total)*share))
}

// oomJob writes a job whose one rank runs a command on the first GPU.
func (s *session) oomJob(what string, command []string) job {
	j := s.name(what)
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText(command, []string{"devices = [" + quote(s.usable[0].UUID) + "]"}, ""))
	return j
}

// fails runs a job whose rank is to fail, and reads why muster says it did.
func (s *session) fails(ctx context.Context, j job) (told, said, error) {
	return s.failsBy(ctx, j, 1)
}

// failsBy is fails for a run that is to end with another exit status.
func (s *session) failsBy(ctx context.Context, j job, status int) (told, said, error) {
	o, err := s.command(ctx, s.muster, "run", j.path)
	if err != nil {
		return told{}, o, err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	if o.exit != status {
		return told{}, o, fmt.Errorf("muster run ends with status %d, not %d: %s", o.exit, status, o.last())
	}
	r, err := s.command(ctx, s.muster, "report", "-", "--json")
	if err != nil {
		return told{}, o, err
	}
	s.keep(filepath.Join(runFolder, j.name+".report.json"), r.stdout)
	var report struct {
		FirstCause *told `json:"first_cause"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		return told{}, o, fmt.Errorf("muster report: %w: %s", err, r.last())
	}
	if report.FirstCause == nil {
		return told{}, o, errors.New("the report has no cause")
	}
	return *report.FirstCause, o, nil
}

// sameOOM compares the class and numbers of a report with what torch itself said, and with
// nvidia-smi's table, which is NVML's.
func (s *session) sameOOM(cause told, class string, o said) error {
	var own memory
	for line := range strings.Lines(o.stdout) {
		if _, text, is := strings.Cut(line, "| {"); is && json.Unmarshal([]byte("{"+text), &own) == nil {
			break
		}
	}
	if own.Total == 0 {
		return fmt.Errorf("the rank has not said what torch knew: %s", o.last())
	}
	const mib = 1 << 20
	n := cause.Numbers
	s.note("class %s: %s", cause.Class, cause.Message)
	if cause.Class != class {
		return fmt.Errorf("the class is %s, not %s; evidence %q, numbers %v", cause.Class, class, cause.Evidence, n)
	}
	wrong := []error{
		nearly("total", n, own.Total, "torch"), nearly("total", n, float64(s.usable[0].Total)*mib, "nvidia-smi"),
		nearly("requested", n, own.Requested, "torch"),
		nearly("allocated", n, own.Allocated, "torch"), nearly("unallocated", n, own.Reserved-own.Allocated, "torch"),
	}
	return errors.Join(wrong...)
}

// nearly compares a number of a report with what somebody else says.
func nearly(name string, numbers map[string]float64, want float64, who string) error {
	const mib = 1 << 20
	got, is := numbers[name]
	switch {
	case !is:
		return fmt.Errorf("the report has no number %q, which is %.0f MiB by %s", name, want/mib, who)
	case math.Abs(got-want) > max(nearShare*want, nearMiB*mib):
		return fmt.Errorf("the report has %q %.0f MiB, and %s %.0f MiB", name, got/mib, who, want/mib)
	}
	return nil
}

// besideHolder holds most of the first GPU by a process that is not muster's, and runs a
// command there that wants more than is left.
func (s *session) besideHolder(ctx context.Context, what string, command []string, class string) (err error) {
	if s.how != byPID {
		return impossible("muster cannot tell who holds a GPU's memory here: nvidia-smi shows the ranks " + s.how)
	}
	r := s.usable[0]
	if r.Mode == "exclusive_process" {
		return impossible(fmt.Sprintf("GPU %d is in compute mode exclusive process: no second process gets in", r.Index))
	}
	_, before, err := s.who(ctx)
	if err != nil {
		return err
	}
	holder := s.name(what + "-holder")
	l, err := s.start(ctx, holder, outside(r), s.argv(mebibytesOf(r, holderShare), holder.stop)...)
	if err != nil {
		return err
	}
	defer l.finish(ctx, &err)
	workers, err := l.await(ctx, 1)
	if err != nil {
		return err
	}
	taken, err := s.taken(ctx, before, r)
	if err != nil {
		return err
	}
	cause, _, err := s.fails(ctx, s.oomJob(what, command))
	if err != nil {
		return err
	}
	s.note("class %s: %s", cause.Class, cause.Message)
	if cause.Class != class {
		return fmt.Errorf("the class is %s, not %s; evidence %q, numbers %v", cause.Class, class, cause.Evidence, cause.Numbers)
	}
	if pid := fmt.Sprintf("pid %d", workers[0].PID); !strings.Contains(cause.Message+strings.Join(cause.Evidence, "\n"), pid) {
		return fmt.Errorf("the report does not name %s, which holds the memory: %s; %q", pid, cause.Message, cause.Evidence)
	}
	return errors.Join(nearly("other_processes", cause.Numbers, taken, "nvidia-smi"), nearly("device_used_after", cause.Numbers, s.inUse(before, r)+taken, "nvidia-smi"))
}

// taken waits until nvidia-smi shows the holder's memory, and tells how much more is in use
// than before, in bytes.
func (s *session) taken(ctx context.Context, before []row, r row) (float64, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		_, now, err := s.who(ctx)
		if err != nil {
			return 0, err
		}
		more := s.inUse(now, r) - s.inUse(before, r)
		switch {
		case more >= holderShare*float64(r.Total)*(1<<20)*0.9:
			return more, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("nvidia-smi does not show the memory that a process has taken on GPU %d", r.Index)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// inUse is how much of a GPU's memory is in use, in bytes.
func (s *session) inUse(rows []row, r row) float64 {
	at := slices.IndexFunc(rows, func(other row) bool { return other.UUID == r.UUID })
	if at < 0 {
		return 0
	}
	return float64(rows[at].Used) * (1 << 20)
}

// checkEvents: the driver tells muster's plugin of errors.
func checkEvents(ctx context.Context, s *session) error {
	if len(s.rows) == 0 {
		return impossible("there is no GPU")
	}
	o, err := s.command(ctx, s.plugin, "watch")
	if err != nil {
		return err
	}
	s.keep("watch-nvml.json", o.all())
	if o.exit != 0 {
		if strings.Contains(o.stderr, "not supported by this GPU") {
			return impossible(o.last())
		}
		return fmt.Errorf("it does not listen: %s", o.last())
	}
	var heard struct {
		Events []struct {
			Kind string
			Xid  int
		}
		Unsupported map[string]string
	}
	if err := json.Unmarshal([]byte(o.stdout), &heard); err != nil {
		return fmt.Errorf("%w: %s", err, o.last())
	}
	for uuid, why := range heard.Unsupported {
		s.note("nothing is heard of %s: %s", uuid, why)
	}
	for _, e := range heard.Events {
		s.note("the driver reports %s %d at this moment", e.Kind, e.Xid)
	}
	if len(heard.Unsupported) >= len(s.rows) {
		return errors.New("nothing is heard of any GPU")
	}
	return nil
}
