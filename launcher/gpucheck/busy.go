package main

import (
	"context"
	"fmt"
)

func checkTooMany(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	j := s.write("too-many", fmt.Sprintf("per_host = %d", len(s.usable)+1))
	return s.mustRefuse(ctx, j, "shared = true", "visible there")
}

func checkTwoNames(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	r := s.usable[0]
	j := s.write("two-names", fmt.Sprintf("devices = [%d, %s]", r.Index, quote(r.UUID)))
	return s.mustRefuse(ctx, j, "two ranks would share it")
}

// checkShared puts two ranks on one GPU. In exclusive-process mode no second one gets in.
func checkShared(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	r := s.usable[0]
	j := s.write("shared", "per_host = 2", "devices = ["+quote(r.UUID)+"]", "shared = true")
	if r.Mode == "exclusive_process" {
		s.note("GPU %d is in compute mode exclusive process: to be refused", r.Index)
		return s.mustRefuse(ctx, j, "exclusive")
	}
	p, err := s.plan(ctx, j)
	if err != nil {
		return err
	}
	if len(p.Ranks) != 2 || p.Ranks[0].GPU.UUID != r.UUID || p.Ranks[1].GPU.UUID != r.UUID {
		return fmt.Errorf("the plan has not two ranks on GPU %d", r.Index)
	}
	return s.land(ctx, j, p)
}

// checkBusyProcess holds the first GPU by a process that muster knows nothing of.
func checkBusyProcess(ctx context.Context, s *session) (err error) {
	if err := s.whole(); err != nil {
		return err
	}
	r := s.usable[0]
	bytes := "2GiB" // where no process shows, only memory tells
	if s.how == byPID || s.how == byNumber {
		bytes = "64MiB"
	}
	j := s.write("busy-process", `per_host = "gpu"`)
	l, err := s.start(ctx, j, outside(r), s.argv(bytes, j.stop)...)
	if err != nil {
		return err
	}
	defer l.finish(ctx, &err)
	workers, err := l.await(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.mustRefuse(ctx, j, s.words(workers[0])...); err != nil {
		return err
	}
	return s.aroundBusy(ctx, r)
}

// outside is the environment of a process on a GPU that is no rank.
func outside(r row) []string {
	return []string{"CUDA_VISIBLE_DEVICES=" + r.UUID, "CUDA_DEVICE_ORDER=PCI_BUS_ID", "LOCAL_RANK=0", "RANK=0"}
}

// words are those by which muster names a process that holds a GPU: its pid in this
// namespace or in another, or that it does not show.
func (s *session) words(w worker) []string {
	if s.how == byPID {
		return []string{fmt.Sprintf("in use by pid %d ", w.PID)}
	}
	return []string{"that no process here explains", "in use by pid"}
}

// aroundBusy: a GPU in use that is named is a warning, and one chosen by number another.
func (s *session) aroundBusy(ctx context.Context, busy row) error {
	p, err := s.plan(ctx, s.write("busy-named", "devices = ["+quote(busy.UUID)+"]"))
	if err != nil {
		return err
	}
	warned := false
	for _, w := range p.Warnings {
		warned = warned || w.Code == "busy_device"
	}
	if !warned {
		return fmt.Errorf("no warning of GPU %d, which is named and in use", busy.Index)
	}
	others := len(s.usable) - 1
	if others == 0 {
		return s.mustRefuse(ctx, s.write("busy-number", "devices = 1"), "can be had")
	}
	p, err = s.plan(ctx, s.write("busy-number", fmt.Sprintf("devices = %d", others)))
	if err != nil {
		return err
	}
	for _, r := range p.Ranks {
		if r.GPU.UUID == busy.UUID {
			return fmt.Errorf("%d GPUs are asked for by number, and the plan has GPU %d, which is in use", others, busy.Index)
		}
	}
	return nil
}

// checkBusyRun holds all GPUs by a run.
func checkBusyRun(ctx context.Context, s *session) (err error) {
	if err := s.whole(); err != nil {
		return err
	}
	first, second := s.write("busy-run"), s.write("busy-run-second", `per_host = "gpu"`)
	l, err := s.run(ctx, first)
	if err != nil {
		return err
	}
	defer l.finish(ctx, &err)
	if _, err := l.await(ctx, len(s.usable)); err != nil {
		return err
	}
	return s.mustRefuse(ctx, second, "muster's run gpu-check-")
}
