package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

// samePlace compares what one rank says with its place in the plan.
func samePlace(p *planned, r plannedRank, w worker) error {
	var wrong []error
	expect := func(what, got, want string) {
		if got != want {
			wrong = append(wrong, fmt.Errorf("rank %d has %s %s, and %s in the plan", r.Rank, what, got, want))
		}
	}
	address, _ := gpu.SysfsPCI(w.PCI)
	expect("the GPU", bareUUID(w.UUID), bareUUID(r.GPU.UUID))
	expect("the GPU at", address, r.GPU.PCI)
	expect("LOCAL_RANK", w.LocalRank, r.env("LOCAL_RANK"))
	if names := strings.Split(r.env("CUDA_VISIBLE_DEVICES"), ","); strings.HasPrefix(names[0], "GPU-") {
		expect("in sight", bareUUID(strings.Join(w.Visible, ",")), bareUUID(strings.Join(names, ",")))
	} else {
		expect("in sight", fmt.Sprint(len(w.Visible)), fmt.Sprint(len(names)))
	}
	if p.Hosts[0].Visibility == "rank" {
		expect("devices in sight:", fmt.Sprint(len(w.Visible)), "1")
		expect("LOCAL_RANK", w.LocalRank, "0")
	}
	if len(r.CPUs) > 0 {
		expect("CPUs", w.CPUs, span(r.CPUs))
	}
	return errors.Join(wrong...)
}

// bareUUID is a UUID, or a list of them, without what is before the digits.
func bareUUID(text string) string {
	return strings.ToLower(strings.NewReplacer("GPU-", "", "MIG-", "").Replace(text))
}

// span writes CPUs as a list such as "0-3,8".
func span(cpus []int) string {
	cpus = slices.Sorted(slices.Values(cpus))
	var parts []string
	for i := 0; i < len(cpus); i++ {
		first := i
		for i+1 < len(cpus) && cpus[i+1] == cpus[i]+1 {
			i++
		}
		part := strconv.Itoa(cpus[first])
		if i > first {
			part += "-" + strconv.Itoa(cpus[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// How workers are seen on their GPUs.
const (
	byPID    = "by their pids"
	byNumber = "by their number: the pids that nvidia-smi shows are of another namespace"
	byMemory = "by the memory that is in use: nvidia-smi shows no process here, as in a container"
)

// see looks in nvidia-smi for workers that hold memory now. before and rows are from before
// they were started.
func (s *session) see(ctx context.Context, before []app, rows []row, workers []worker) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		apps, now, err := s.who(ctx)
		if err != nil {
			return err
		}
		how, err := seen(newApps(before, apps), rows, now, workers)
		switch {
		case err == nil && (how != byMemory || s.how == byMemory || time.Now().After(deadline)):
			s.how = how
			s.note("nvidia-smi shows the ranks %s", how)
			return nil
		case err != nil && time.Now().After(deadline):
			return err
		}
		select { // the list may be behind
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// seen tells how workers are seen on the GPUs that they say they have.
func seen(apps []app, before, now []row, workers []worker) (how string, err error) {
	on := map[string]int{} // workers of each GPU
	known := 0
	for _, w := range workers {
		on[w.UUID]++
		for _, a := range apps {
			if a.PID != w.PID {
				continue
			}
			known++
			if bareUUID(a.UUID) != bareUUID(w.UUID) {
				return "", fmt.Errorf("rank %s has %s, and nvidia-smi shows its pid %d on %s", w.Rank, w.UUID, a.PID, a.UUID)
			}
		}
	}
	switch {
	case known == len(workers):
		return byPID, nil
	case known > 0:
		return "", fmt.Errorf("nvidia-smi shows %d of %d workers", known, len(workers))
	case len(apps) > 0:
		return byNumber, sameNumbers(apps, on)
	}
	return byMemory, moreMemory(before, now, on)
}

// sameNumbers compares how many processes each GPU has.
func sameNumbers(apps []app, on map[string]int) error {
	shown := map[string]int{}
	for _, a := range apps {
		shown[a.UUID]++
	}
	for uuid, n := range on {
		if shown[uuid] != n {
			return fmt.Errorf("%d workers say that they have %s, and nvidia-smi shows %d new processes there", n, uuid, shown[uuid])
		}
	}
	return nil
}

// held is what a worker takes at least, in MiB.
const held = 64

// moreMemory compares how much is in use before and now.
func moreMemory(before, now []row, on map[string]int) error {
	for i, r := range now {
		if n := on[r.UUID]; i < len(before) && n > 0 && r.Used-before[i].Used < n*held {
			return fmt.Errorf("%d workers say that they have GPU %d, and its memory in use went from %d to %d MiB", n, r.Index, before[i].Used, r.Used)
		}
	}
	return nil
}
