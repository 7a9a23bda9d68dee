package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// observeBlock has torch's own numbers told.
const observeBlock = "  observe {\n    torch = true\n  }\n"

// numbersWait is how long muster may take to tell all numbers of a rank: samples are of each
// second, and the coordinator is told every five.
const numbersWait = 15 * time.Second

// tensors are what torch says that it holds, in bytes.
type tensors struct {
	Allocated, Reserved, Total float64
}

// numbers are what muster status tells of a rank, in bytes; nil: not known.
type numbers struct {
	Allocated, Reserved *float64
	Process             *float64
	Used                *float64 `json:"device_used"`
}

// missing names the first number that is not known.
func (n numbers) missing() string {
	for _, one := range []struct {
		name  string
		value *float64
	}{{"allocated", n.Allocated}, {"reserved", n.Reserved}, {"device_used", n.Used}} {
		if one.value == nil {
			return one.name
		}
	}
	return ""
}

// checkNumbers compares muster's numbers of a rank's memory with those of torch itself and of
// nvidia-smi.
func checkNumbers(ctx context.Context, s *session) (err error) {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	path, err := s.script("held.py")
	if err != nil {
		return err
	}
	j := s.name("torch-numbers")
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText([]string{s.python, path, j.stop}, []string{"devices = [" + quote(s.usable[0].UUID) + "]"}, observeBlock))
	l, err := s.run(ctx, j)
	if err != nil {
		return err
	}
	defer l.finish(ctx, &err)
	workers, err := l.await(ctx, 1)
	if err != nil {
		return err
	}
	if workers[0].Memory == nil {
		return errors.New("the rank has not said what torch holds")
	}
	shown, err := s.numbersOf(ctx, j, *workers[0].Memory)
	if err != nil {
		return err
	}
	return s.sameMemory(ctx, shown, workers[0])
}

// numbersOf waits until muster tells of rank 0 what torch does, or has no more time for it:
// what it tells then is compared as it is.
func (s *session) numbersOf(ctx context.Context, j job, own tensors) (numbers, error) {
	deadline := time.Now().Add(numbersWait)
	for {
		now, text, err := s.statusNumbers(ctx)
		if err != nil {
			return now, err
		}
		lacks := now.missing()
		late := time.Now().After(deadline)
		if late || lacks == "" && *now.Allocated == own.Allocated && *now.Reserved == own.Reserved {
			s.keep(filepath.Join(runFolder, j.name+".status.json"), text)
			if lacks != "" {
				err = fmt.Errorf("muster status does not tell of %s within %.0f s; it is in runs/%s.status.json", lacks, numbersWait.Seconds(), j.name)
			}
			return now, err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// statusNumbers are those that muster status tells of the one rank of the newest run.
func (s *session) statusNumbers(ctx context.Context) (n numbers, text string, err error) {
	o, err := s.command(ctx, s.muster, "status", "-", "--json")
	if err != nil || o.exit != 0 { // it may be too early for it
		return n, o.all(), err
	}
	var status struct {
		Ranks []struct {
			Samples *struct{ Now numbers }
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &status); err != nil {
		return n, o.stdout, fmt.Errorf("muster status: %w: %s", err, o.last())
	}
	if len(status.Ranks) == 1 && status.Ranks[0].Samples != nil {
		n = status.Ranks[0].Samples.Now
	}
	return n, o.stdout, nil
}

// sameMemory compares what muster has shown. Torch's own numbers are to be equal; nvidia-smi
// rounds to MiB, and the driver moves some memory of its own.
func (s *session) sameMemory(ctx context.Context, shown numbers, w worker) error {
	const mib = 1 << 20
	_, rows, err := s.who(ctx)
	if err != nil {
		return err
	}
	used, process := s.inUse(rows, s.usable[0]), math.NaN()
	o, err := s.command(ctx, "nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
	if err != nil {
		return err
	}
	for line := range strings.Lines(o.stdout) {
		pid, size, _ := strings.Cut(strings.TrimSpace(line), ", ")
		if pid == strconv.Itoa(w.PID) && mebibytes(size) >= 0 {
			process = float64(mebibytes(size)) * mib
		}
	}
	s.note("tensors %.0f MiB and reserved %.0f MiB by torch; in use %.0f MiB by nvidia-smi", w.Memory.Allocated/mib, w.Memory.Reserved/mib, used/mib)
	wrong := []error{
		within("allocated", *shown.Allocated, w.Memory.Allocated, 0, "torch"),
		within("reserved", *shown.Reserved, w.Memory.Reserved, 0, "torch"),
		within("device_used", *shown.Used, used, held*mib, "nvidia-smi"),
	}
	switch {
	case math.IsNaN(process):
		s.note("nvidia-smi does not tell what the rank's process holds")
	case shown.Process == nil:
		wrong = append(wrong, fmt.Errorf("muster does not tell what the rank's process holds, which is %.0f MiB by nvidia-smi", process/mib))
	default:
		s.note("its process holds %.0f MiB by nvidia-smi: %.0f MiB beside what torch has reserved", process/mib, (process-w.Memory.Reserved)/mib)
		wrong = append(wrong, within("process", *shown.Process, process, mib, "nvidia-smi"))
		if *shown.Process < *shown.Reserved {
			wrong = append(wrong, fmt.Errorf("the process holds %.0f MiB, which is less than the %.0f MiB that torch has reserved", *shown.Process/mib, *shown.Reserved/mib))
		}
	}
	return errors.Join(wrong...)
}

// within compares a number with what somebody else says, by so many bytes.
func within(name string, got, want, apart float64, who string) error {
	if math.Abs(got-want) > apart {
		return fmt.Errorf("muster status has %q %.0f bytes, and %s %.0f", name, got, who, want)
	}
	return nil
}
