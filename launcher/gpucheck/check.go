package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outcomes of a check.
const (
	passed      = "ok"
	failedCheck = "fail"
	notPossible = "not_possible"
)

// result is what came of a check.
type result struct {
	Name    string   `json:"name"`
	Outcome string   `json:"outcome"`
	Why     string   `json:"why,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what was seen beside
	Seconds float64  `json:"seconds"`
}

// check is one thing to prove.
type check struct {
	name string
	do   func(context.Context, *session) error
}

// Parts of the checks. Each has all of the time limit for itself.
const (
	startPart = "start" // what is there, where ranks land, and how they fail
	watchPart = "watch" // what is seen of ranks that run
)

// part is a part's checks.
type part struct {
	name   string
	checks []check
}

// impossible is the error of a check that this machine does not allow; the text is why.
type impossible string

func (i impossible) Error() string { return string(i) }

// checkLimit is how long one check may take: a driver that nothing keeps loaded takes
// seconds for each GPU and process.
const checkLimit = time.Minute

// spare is how much longer than the limit of all checks the last of them may take.
const spare = 10 * time.Second

// firstChecks are made whichever part is: what later ones need, they find.
func firstChecks() []check {
	return []check{
		{"nvidia-smi tells of GPUs", checkMachine},
		{"nvml answers", checkNVML},
		{"nvidia-smi prober answers", checkSMI},
		{"both probers tell the same", checkProbersAgree},
		{"each missing value has a reason", checkReasons},
		{"probers agree with nvidia-smi's table", checkRows},
		{"muster probe tells what nvml does", checkMusterProbe},
		{"probing leaves no process on a GPU", checkNoContext},
		{"the driver tells of errors", checkEvents},
		{"muster plan gives each GPU one rank", checkPlan},
		landing(variants[0]),
	}
}

// lastCheck is made even when there is no time left: it says whether something is left behind.
var lastCheck = check{"nothing is left and nothing was set", checkAfter}

// parts are all parts in their order, as are the checks of each.
func parts() []part { return []part{{startPart, startChecks()}, {watchPart, watchChecks()}} }

func landing(v variant) check { return check{"ranks land as planned: " + v.name, v.check} }

func startChecks() []check {
	var list []check
	for _, v := range variants[1:] {
		list = append(list, landing(v))
	}
	list = append(list,
		check{"more ranks than GPUs are refused", checkTooMany},
		check{"one GPU under two names is refused", checkTwoNames},
		check{"two ranks share a GPU where that is meant", checkShared},
		check{"muster sees each rank on its GPU", checkProven},
		check{"a GPU in use by a process is refused", checkBusyProcess},
		check{"a GPU in use by a run is refused", checkBusyRun},
		check{"two launches at once get no GPU in common", checkRace},
		check{"one GPU each for two launches at once", checkSideBySide},
		check{"an OOM beside somebody's process is told as such", checkOOMByOther},
		check{"workers share a GPU by MPS with their limits", checkMPS},
		check{"MPS: what is killed is told and nothing is left", checkMPSEnds},
		check{"torch: muster finds the one that Python imports", checkTorchFound},
		check{"torch: it takes what the allocator block becomes", checkAllocator},
		check{"torch: a setting that it does not know", checkUnknownSetting},
		check{"torch: NCCL starts in a rank's environment", checkNCCL},
	)
	for _, k := range oomKinds {
		list = append(list, check{"torch: an OOM is told as " + k.class, checkOOM(k.name, k.class)})
	}
	return list
}

func watchChecks() []check {
	return []check{
		{"torch: muster's numbers of memory are torch's and NVML's", checkNumbers},
		{"torch: NCCL's buffers take what is estimated", checkBuffers},
		{"torch: a kernel that only spins is told as a hang", checkSpins},
		{"torch: silent work is told as nothing", checkWorks},
	}
}

// checkAll makes one check after the other.
func (s *session) checkAll(ctx context.Context) []result {
	end := time.Now().Add(s.limit)
	results := s.checkEach(ctx, firstChecks(), end)
	for _, p := range parts() {
		if s.part != "" && s.part != p.name {
			continue
		}
		results = append(results, s.checkEach(ctx, p.checks, end)...)
		end = time.Now().Add(s.limit)
	}
	return append(results, s.check(lastCheck, func() error { return s.one(context.WithoutCancel(ctx), lastCheck, checkLimit) }))
}

// checkEach makes checks, none of which begins after the end of the time.
func (s *session) checkEach(ctx context.Context, list []check, end time.Time) (results []result) {
	for _, c := range list {
		results = append(results, s.check(c, func() error {
			switch {
			case ctx.Err() != nil:
				return impossible("interrupted")
			case time.Now().After(end):
				return impossible("no time left")
			}
			return s.one(ctx, c, min(checkLimit, time.Until(end)+spare))
		}))
	}
	return results
}

// check makes a check in a way, and tells what came of it.
func (s *session) check(c check, do func() error) result {
	s.notes = nil
	begin := time.Now()
	err := do()
	r := result{Name: c.name, Outcome: passed, Notes: s.notes, Seconds: time.Since(begin).Seconds()}
	var cannot impossible
	switch {
	case errors.As(err, &cannot):
		r.Outcome, r.Why = notPossible, cannot.Error()
	case err != nil:
		r.Outcome, r.Why = failedCheck, err.Error()
	}
	s.progress(r)
	return r
}

func (s *session) one(ctx context.Context, c check, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.do(ctx, s)
}

// note tells something beside the outcome of the check in progress.
func (s *session) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func failed(results []result) bool {
	for _, r := range results {
		if r.Outcome == failedCheck {
			return true
		}
	}
	return false
}
