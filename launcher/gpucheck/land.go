package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkPlan has each GPU in the plan once. Those of the plan are used from here on.
func checkPlan(ctx context.Context, s *session) error {
	if err := s.idle(); err != nil {
		return err
	}
	j := s.write("plan")
	p, err := s.plan(ctx, j)
	if err != nil {
		return err
	}
	for _, r := range p.Ranks {
		at := slices.IndexFunc(s.rows, func(row row) bool { return row.UUID == r.GPU.UUID || row.partitioned() && row.sysfs() == r.GPU.PCI })
		if at < 0 {
			return fmt.Errorf("rank %d is to run on %s at %s, which nvidia-smi does not show", r.Rank, r.GPU.UUID, r.GPU.PCI)
		}
		found := s.rows[at]
		if !found.partitioned() && slices.ContainsFunc(s.usable, func(u row) bool { return u.UUID == found.UUID }) {
			return fmt.Errorf("two ranks are to run on %s", found.UUID)
		}
		s.usable = append(s.usable, found)
	}
	if value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		s.note("CUDA_VISIBLE_DEVICES=%s is set here: %d of %d GPUs are used", value, len(s.usable), len(s.rows))
	} else if !s.partitioned() && len(s.usable) != len(s.rows) {
		return fmt.Errorf("%d ranks for %d GPUs", len(s.usable), len(s.rows))
	}
	return nil
}

// idle is an error where somebody else computes on a GPU here.
func (s *session) idle() error {
	if len(s.rows) == 0 {
		return impossible("there is no GPU")
	}
	if len(s.apps) > 0 {
		return impossible(fmt.Sprintf("pid %d (%s) computes on %s", s.apps[0].PID, s.apps[0].Name, s.apps[0].UUID))
	}
	for _, r := range s.rows {
		if r.Used > 1024 {
			return impossible(fmt.Sprintf("%d MiB of GPU %d are in use by somebody whom nvidia-smi does not show", r.Used, r.Index))
		}
		if r.Mode == "prohibited" {
			return impossible(fmt.Sprintf("GPU %d is in compute mode prohibited", r.Index))
		}
	}
	return nil
}

func (s *session) partitioned() bool { return slices.ContainsFunc(s.rows, row.partitioned) }

// whole is an error where ranks cannot be put on whole GPUs.
func (s *session) whole() error {
	switch {
	case len(s.usable) == 0:
		return impossible("there is no plan with GPUs that are idle")
	case s.partitioned():
		return impossible("MIG is on")
	}
	return nil
}

// variant is a way to say which GPUs ranks get.
type variant struct {
	name, file string
	ranks      func(usable []row) []string // of the job's ranks block
	// order is that of the GPUs which the ranks are to get; nil: as the plan has them.
	order func(usable []row) []row
	// called is a GPU's name in CUDA_VISIBLE_DEVICES.
	called func(row) string
	alone  bool // each rank sees its own GPU only
}

var variants = []variant{
	{name: "by default", file: "default", called: uuid,
		ranks: func([]row) []string { return nil }},
	{name: "device_names = \"index\"", file: "index", called: index,
		ranks: func([]row) []string { return []string{`device_names = "index"`} }},
	{name: "visibility = \"rank\"", file: "rank", called: uuid, alone: true,
		ranks: func([]row) []string { return []string{`visibility = "rank"`} }},
	{name: "devices by parts of UUIDs", file: "uuid", called: uuid, order: backwards,
		ranks: func(usable []row) []string { return named(usable, prefix) }},
	{name: "devices by PCI addresses", file: "pci", called: uuid, order: backwards,
		ranks: func(usable []row) []string { return named(usable, func(_ []row, r row) string { return r.PCI }) }},
}

func uuid(r row) string { return r.UUID }

func index(r row) string { return strconv.Itoa(r.Index) }

func join(gpus []row, name func(row) string, by string) string {
	var all []string
	for _, r := range gpus {
		all = append(all, name(r))
	}
	return strings.Join(all, by)
}

// backwards: the last GPU first, so that an order which is not that of nvidia-smi counts.
func backwards(usable []row) []row {
	usable = slices.Clone(usable)
	slices.SortFunc(usable, func(a, b row) int { return b.Index - a.Index })
	return usable
}

// named is a list of devices.
func named(usable []row, name func(all []row, r row) string) []string {
	list := join(backwards(usable), func(r row) string { return quote(name(usable, r)) }, ", ")
	return []string{"devices = [" + list + "]"}
}

// prefix is as much of a UUID as tells it from the others, and no less than people write.
func prefix(all []row, r row) string {
	const least = len("GPU-8932f937")
	for n := min(least, len(r.UUID)); n < len(r.UUID); n++ {
		same := func(other row) bool { return other.UUID != r.UUID && strings.HasPrefix(other.UUID, r.UUID[:n]) }
		if !slices.ContainsFunc(all, same) {
			return r.UUID[:n]
		}
	}
	return r.UUID
}

// check plans a job, runs it, and looks at where its ranks are.
func (v variant) check(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	j := s.write(v.file, v.ranks(s.usable)...)
	p, err := s.plan(ctx, j)
	if err != nil {
		return err
	}
	if v.order != nil {
		for i, r := range v.order(s.usable) {
			if i >= len(p.Ranks) || p.Ranks[i].GPU.UUID != r.UUID {
				return fmt.Errorf("the plan has not GPU %d for rank %d", r.Index, i)
			}
		}
	}
	if err := v.shows(p, s.inPlan(p)); err != nil {
		return err
	}
	return s.land(ctx, j, p)
}

// shows compares what each rank is to see with what the variant is about. In
// exclusive-process mode each rank sees its own by itself.
func (v variant) shows(p *planned, gpus []row) error {
	alone := p.Hosts[0].Visibility == "rank"
	if alone != v.alone && gpus[0].Mode != "exclusive_process" {
		return fmt.Errorf("the plan has visibility %q", p.Hosts[0].Visibility)
	}
	for i, r := range p.Ranks {
		want := join(gpus, v.called, ",")
		if alone {
			want = v.called(gpus[i])
		}
		if got := r.env("CUDA_VISIBLE_DEVICES"); got != want {
			return fmt.Errorf("rank %d has CUDA_VISIBLE_DEVICES=%s, not %s", i, got, want)
		}
	}
	return nil
}

// inPlan are the GPUs of the ranks in their order.
func (s *session) inPlan(p *planned) []row {
	var gpus []row
	for _, r := range p.Ranks {
		for _, row := range s.rows {
			if row.UUID == r.GPU.UUID {
				gpus = append(gpus, row)
			}
		}
	}
	return gpus
}

// land runs a job and compares its ranks with the plan, and with whom nvidia-smi sees.
func (s *session) land(ctx context.Context, j job, p *planned) (err error) {
	before, rows, err := s.who(ctx)
	if err != nil {
		return err
	}
	l, err := s.run(ctx, j)
	if err != nil {
		return err
	}
	defer l.finish(ctx, &err)
	workers, err := l.await(ctx, len(p.Ranks))
	if err != nil {
		return err
	}
	s.note("the last rank has its GPU %.1f s after muster run was typed", time.Since(l.begin).Seconds())
	if err := samePlaces(p, workers); err != nil {
		return err
	}
	return s.see(ctx, before, rows, workers)
}

// who is what nvidia-smi shows now: who computes, and how much is in use.
func (s *session) who(ctx context.Context) ([]app, []row, error) {
	apps, err := s.listApps(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, _, err := s.query(ctx)
	return apps, rows, err
}

// samePlaces compares what ranks say with the plan.
func samePlaces(p *planned, workers []worker) error {
	var wrong []error
	said := map[string]worker{}
	for _, w := range workers {
		if _, twice := said[w.Rank]; twice {
			wrong = append(wrong, fmt.Errorf("two workers say that they are rank %s", w.Rank))
		}
		said[w.Rank] = w
	}
	for _, r := range p.Ranks {
		w, is := said[strconv.Itoa(r.Rank)]
		if !is {
			wrong = append(wrong, fmt.Errorf("no worker says that it is rank %d", r.Rank))
			continue
		}
		wrong = append(wrong, samePlace(p, r, w))
	}
	return errors.Join(wrong...)
}
