package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// bufferSizes are the two values of NCCL_BUFFSIZE that are compared. All that a communicator
// takes beside its buffers is the same with either.
var bufferSizes = []string{"4MiB", "32MiB"}

// bufferChannels are so many that NCCL is held to, and that the estimate counts with.
const bufferChannels = 8

// layout is how ranks that NCCL connects are put on GPUs.
type layout struct {
	what    string
	ranks   []string // of the job's ranks block
	more    string   // of the job block
	sharers int      // ranks of a GPU
	world   int
}

// layouts are those that this machine allows, the one that tells most first.
func (s *session) layouts() []layout {
	first := "devices = [" + quote(s.usable[0].UUID) + "]"
	alone := layout{what: "one rank", ranks: []string{first}, sharers: 1, world: 1}
	switch {
	case len(s.usable) > 1:
		return []layout{{what: "two ranks on two GPUs", sharers: 1, world: 2,
			ranks: []string{"devices = [" + quote(s.usable[0].UUID) + ", " + quote(s.usable[1].UUID) + "]"}}}
	case takesTwoRanksPerGPU(s.torch.NCCL) && s.usable[0].Mode != "exclusive_process":
		return []layout{{what: "two ranks on one GPU", sharers: 2, world: 2, ranks: []string{"per_host = 2", first, "shared = true"},
			more: "  env = { NCCL_MULTI_RANK_GPU_ENABLE = \"1\" }\n"}, alone}
	}
	return []layout{alone}
}

// takesTwoRanksPerGPU reports whether an NCCL lets two ranks of a communicator have one GPU
// where NCCL_MULTI_RANK_GPU_ENABLE is set: from 2.30 on.
func takesTwoRanksPerGPU(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > 2 || major == 2 && minor >= 30)
}

// taking is what NCCL's buffers of one size take of a rank's GPU, in bytes: as measured, and
// as estimated at least and at most.
type taking struct{ took, least, most float64 }

// checkBuffers measures what NCCL's buffers of two sizes take, and compares the difference
// with that of the estimates.
func checkBuffers(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	if s.torch.NCCL == "" {
		return impossible(fmt.Sprintf("torch %s has no NCCL", s.torch.Version))
	}
	var failed error
	for _, l := range s.layouts() {
		var found []taking
		for _, size := range bufferSizes {
			t, err := s.take(ctx, l, size)
			if err != nil {
				failed = fmt.Errorf("%s: %w", l.what, err)
				break
			}
			found = append(found, t)
		}
		if len(found) == len(bufferSizes) {
			return s.compareTakings(l, found[0], found[1])
		}
		if l.sharers == 1 {
			return failed
		}
		s.note("NCCL %s refuses it: %s", s.torch.NCCL, lastLine(failed.Error()))
	}
	return failed
}

// take measures one size.
func (s *session) take(ctx context.Context, l layout, size string) (t taking, err error) {
	path, err := s.script("buffers.py")
	if err != nil {
		return t, err
	}
	j := s.name("torch-buffers-" + size)
	block := fmt.Sprintf("%s  memory {\n    parameters = \"1M\"\n  }\n  nccl {\n    buffer_size = %q\n    min_ctas    = %d\n    max_ctas    = %d\n  }\n", l.more, size, bufferChannels, bufferChannels)
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText([]string{s.python, path, strconv.Itoa(l.sharers)}, l.ranks, block))
	var got struct {
		World int
		Took  float64
	}
	p, _, err := s.runPlanned(ctx, j, &got)
	if err != nil {
		return t, err
	}
	if got.World != l.world {
		return t, fmt.Errorf("a world of %d", got.World)
	}
	if p.Memory == nil || len(p.Memory.Ranks) != l.world {
		return t, errors.New("the plan has no estimate of memory")
	}
	estimate := p.Memory.Ranks[0]
	return taking{got.Took, estimate.Least, estimate.Most}, nil
}

// roundings is by how much what is free may be off, in bytes: the driver gives whole pages.
const roundings = 8 << 20

// compareTakings judges the two. Between two GPUs the estimate is to hold; two ranks of one
// GPU need not connect as two GPUs do; and a rank alone has nobody to connect to.
func (s *session) compareTakings(l layout, small, large taking) error {
	const mib = 1 << 20
	grew := large.took - small.took
	least, most := large.least-small.least, large.most-small.most
	s.note("%s: a communicator takes %.0f MiB of each with buffers of %s, %.0f MiB with %s", l.what, small.took/mib, bufferSizes[0], large.took/mib, bufferSizes[1])
	if l.world == 1 {
		return impossible(fmt.Sprintf("with one GPU there is no peer to have buffers for: a communicator of one rank takes %.0f MiB with buffers of %s and %.0f MiB with %s",
			small.took/mib, bufferSizes[0], large.took/mib, bufferSizes[1]))
	}
	s.note("that is %.0f MiB more; estimated are %.0f to %.0f MiB more", grew/mib, least/mib, most/mib)
	inside := grew >= least-roundings && grew <= most+roundings
	switch {
	case inside:
		return nil
	case l.sharers > 1:
		return impossible(fmt.Sprintf("two ranks of one GPU take %.0f MiB more, and not %.0f to %.0f as two GPUs are estimated to: how they connect is not what the estimate is about", grew/mib, least/mib, most/mib))
	}
	return fmt.Errorf("larger buffers take %.0f MiB more of each GPU, and %.0f to %.0f MiB by the estimate", grew/mib, least/mib, most/mib)
}
