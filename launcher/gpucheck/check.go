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

// impossible is the error of a check that this machine does not allow; the text is why.
type impossible string

func (i impossible) Error() string { return string(i) }

// checkLimit is how long one check may take: a driver that nothing keeps loaded takes
// seconds for each GPU and process.
const checkLimit = time.Minute

// spare is how much longer than the limit of all checks the last of them may take.
const spare = 10 * time.Second

// checks are all checks in their order: what a later one needs, an earlier one has found.
func checks() []check {
	list := []check{
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
	}
	for _, v := range variants {
		list = append(list, check{"ranks land as planned: " + v.name, v.check})
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
		check{"torch: muster finds the one that Python imports", checkTorchFound},
		check{"torch: it takes what the allocator block becomes", checkAllocator},
		check{"torch: a setting that it does not know", checkUnknownSetting},
		check{"torch: NCCL starts in a rank's environment", checkNCCL},
	)
	for _, k := range oomKinds {
		list = append(list, check{"torch: an OOM is told as " + k.class, checkOOM(k.name, k.class)})
	}
	return append(list, check{"nothing is left and nothing was set", checkAfter})
}

// checkAll makes one check after the other.
func (s *session) checkAll(ctx context.Context) []result {
	end := time.Now().Add(s.limit)
	var results []result
	all := checks()
	for i, c := range all {
		s.notes = nil
		begin := time.Now()
		err := s.one(ctx, c, end, i == len(all)-1)
		r := result{Name: c.name, Outcome: passed, Notes: s.notes, Seconds: time.Since(begin).Seconds()}
		var cannot impossible
		switch {
		case errors.As(err, &cannot):
			r.Outcome, r.Why = notPossible, cannot.Error()
		case err != nil:
			r.Outcome, r.Why = failedCheck, err.Error()
		}
		results = append(results, r)
		s.progress(r)
	}
	return results
}

// one makes a check, unless there is no time left. The last is made even then: it says
// whether something is left behind.
func (s *session) one(ctx context.Context, c check, end time.Time, last bool) error {
	limit := checkLimit
	switch {
	case last:
		ctx = context.WithoutCancel(ctx)
	case ctx.Err() != nil:
		return impossible("interrupted")
	case time.Now().After(end):
		return impossible("no time left")
	default:
		limit = min(limit, time.Until(end)+spare)
	}
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
