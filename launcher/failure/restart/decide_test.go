package restart

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/progress"
)

func verdictOf(name string) failure.Verdict {
	c, ok := class.Find(name)
	if !ok {
		panic(name)
	}
	return failure.Verdict{Class: name, Restart: c.Restart, Numbers: map[string]float64{}}
}

func rules(attempts int, on ...Rule) *Rules {
	return &Rules{Attempts: attempts, Within: 3600, Backoff: 10, HealthyAfter: 600, On: on}
}

func on(name string, attempts int, settings ...string) Rule {
	r := Rule{Class: name, Attempts: attempts, WaitMemory: Unset}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if r.Settings == nil {
			r.Settings = map[string]string{}
		}
		r.Settings[key] = value
	}
	return r
}

// failed is an attempt of some seconds that failed; every one differs in its signature
// unless same is given.
func failed(name string, began, ended float64, same ...string) Past {
	return Past{Began: began, Ended: ended, Class: name, Signature: name + fmt.Sprint(same, ended*float64(1-min(1, len(same)))), Situation: "as ever", Rule: Unset}
}

func at(furthest int) *failure.Steps {
	return &failure.Steps{First: progress.Mark{Epoch: -1, Step: 0}, Furthest: progress.Mark{Epoch: -1, Step: furthest}}
}

type row struct {
	name    string
	rules   *Rules
	class   string
	change  func(h *History, v *failure.Verdict)
	past    []Past
	failed  *Past
	restart bool
	after   float64
	changes string
	reason  string // that the reason contains
}

func with(p Past, change func(*Past)) Past {
	change(&p)
	return p
}

func byRule(rule int) func(*Past) { return func(p *Past) { p.Rule = rule } }

var rows = []row{
	{name: "without a restart block there is no second attempt", class: class.NCCLTimeout, reason: "no restart block"},
	{name: "what can work again is started at once", rules: rules(3), class: class.NCCLTimeout, restart: true, reason: "restart 1 of 3 within 1h after nccl.timeout"},
	{name: "the second restart waits", rules: rules(3), class: class.NCCLTimeout, past: []Past{failed("exit", 0, 5)}, restart: true, after: 10, reason: "restart 2 of 3 within 1h after nccl.timeout, in 10s"},
	{name: "the wait doubles", rules: rules(9), class: class.NCCLTimeout, past: []Past{failed("exit", 0, 5), failed("exit", 5, 10), failed("exit", 10, 15)}, restart: true, after: 40},
	{name: "the budget counts every class", rules: rules(2), class: class.NCCLTimeout, past: []Past{failed("exit", 0, 5), failed("crash.segv", 5, 10)}, reason: "2 of 2 restarts used within 1h: 1 for crash.segv, 1 for exit"},
	{name: "what is out of the window does not count", rules: rules(1), class: class.NCCLTimeout, past: []Past{failed("exit", -9000, -8000)}, restart: true, reason: "restart 1 of 1"},
	{name: "another port is no restart of the budget", rules: rules(1), class: class.NCCLTimeout, past: []Past{with(failed("port_in_use", 0, 5), func(p *Past) { p.Free = true })}, restart: true},
	{name: "a long healthy attempt clears the count", rules: rules(1), class: class.KilledUnknown, past: []Past{failed("exit", 0, 5), failed("exit", 10, 1000)}, restart: false, reason: "1 of 1"},
	{name: "the attempt that has just failed may be the healthy one", rules: rules(1), class: class.KilledUnknown, past: []Past{failed("exit", 0, 5)}, failed: new(failed("killed.unknown", 5, 900)), restart: true, after: 0, reason: "restart 1 of 1"},
	{name: "a hang is no health", rules: rules(1), class: class.NCCLTimeout, past: []Past{failed("exit", 0, 5)}, failed: new(failed("nccl.timeout", 5, 2000)), reason: "1 of 1"},
	{name: "nor is a long time without a step", rules: rules(1), class: class.KilledUnknown, past: []Past{failed("exit", 0, 5)},
		failed: new(with(failed("killed.unknown", 5, 2000), func(p *Past) { p.Steps = at(0) })), reason: "1 of 1"},

	{name: "the program's own error is not restarted", rules: rules(3), class: class.UserError, reason: "comes again with the same program"},
	{name: "unless the user says so", rules: rules(3, on("user_error", 1)), class: class.UserError, restart: true, reason: `as on "user_error" says`},
	{name: "attempts = 0 is never", rules: rules(3, on("nccl", 0)), class: class.NCCLTimeout, reason: `on "nccl" has attempts = 0`},
	{name: "what the user stopped is over", rules: rules(3, on("stopped", 3)), class: class.Stopped, reason: "nothing that another attempt could better"},
	{name: "a time limit is over", rules: rules(3), class: class.TimeLimit, reason: "nothing that another attempt could better"},

	{name: "the same failure twice stops at once", rules: rules(9), class: class.Exit, past: []Past{failed("exit", 0, 1, "x")}, failed: new(failed("exit", 1, 2, "x")), reason: "the same failure came before"},
	{name: "unless it came further", rules: rules(9), class: class.Exit, past: []Past{with(failed("exit", 0, 1, "x"), func(p *Past) { p.Steps = at(5) })},
		failed: new(with(failed("exit", 1, 2, "x"), func(p *Past) { p.Steps = at(9) })), restart: true, after: 10},
	{name: "coming as far as before is no progress", rules: rules(9), class: class.Exit, past: []Past{with(failed("exit", 0, 1, "x"), func(p *Past) { p.Steps = at(9) })},
		failed: new(with(failed("exit", 1, 2, "x"), func(p *Past) { p.Steps = at(9) })), reason: "the same failure came before"},
	{name: "a checkpoint is progress", rules: rules(9), class: class.Exit, past: []Past{with(failed("exit", 0, 1, "x"), func(p *Past) { p.Steps = at(9) })},
		failed: new(with(failed("exit", 1, 2, "x"), func(p *Past) { p.Steps = at(9); p.Steps.Checkpoint = 1.5 })), restart: true, after: 10},
	{name: "another situation is another try", rules: rules(9), class: class.Exit, past: []Past{with(failed("exit", 0, 1, "x"), func(p *Past) { p.Situation = "other" })}, failed: new(failed("exit", 1, 2, "x")), restart: true, after: 10},
	{name: "the same failure after another one stops too", rules: rules(9), class: class.Exit, past: []Past{failed("exit", 0, 1, "x"), failed("killed.unknown", 1, 2)}, failed: new(failed("exit", 2, 3, "x")), reason: "the same failure came before"},

	{name: "a lost GPU ends the run with its host", rules: rules(3), class: class.GPULost, reason: "gpu.lost belongs to gpu07"},
	{name: "whatever the rules say", rules: rules(3, on("gpu", 3)), class: class.GPULost, reason: "gpu.lost belongs to gpu07"},
	{name: "a rule may try a failing link again", rules: rules(3, on("gpu.nvlink", 1)), class: class.GPUNVLink, restart: true},
	{name: "a contained error of memory is restarted", rules: rules(3), class: class.GPUECC, change: func(_ *History, v *failure.Verdict) { v.Restart = class.Yes }, restart: true},
	{name: "an Xid has its own rule", rules: rules(3, on("gpu.xid", 3), on("gpu.xid.8", 0)), class: class.GPUXid, change: func(_ *History, v *failure.Verdict) { v.Numbers["xid"] = 8 }, reason: `on "gpu.xid.8" has attempts = 0`},

	{name: "the longest name decides", rules: rules(3, on("oom.capacity", 0), on("oom", 2, "A=1")), class: class.OOMCapacity, reason: `on "oom.capacity" has attempts = 0`},
	{name: "a remedy is tried", rules: rules(3, on("oom.capacity", 1, "MICRO_BATCH_SIZE=4")), class: class.OOMCapacity, restart: true, changes: "MICRO_BATCH_SIZE=4", reason: `with MICRO_BATCH_SIZE = 4, as on "oom.capacity" says`},
	{name: "and once only", rules: rules(3, on("oom.capacity", Unset, "M=4")), class: class.OOMCapacity, past: []Past{with(failed("oom.capacity", 0, 5), byRule(0))},
		change: func(h *History, _ *failure.Verdict) { h.InForce.Rules = []int{0} }, reason: `on "oom.capacity" has no more to try: 1 restart by it within 1h`},
	{name: "rules of one class are a ladder", rules: rules(3, on("oom", Unset, "M=4"), on("oom", Unset, "M=2")), class: class.OOMCapacity, past: []Past{with(failed("oom.capacity", 0, 5, "x"), byRule(0))},
		failed: new(failed("oom.capacity", 6, 9, "x")), change: func(h *History, _ *failure.Verdict) { h.InForce.Rules = []int{0} }, restart: true, after: 10, changes: "M=2"},
	{name: "another class's rule stays in force", rules: rules(3, on("oom", Unset, "M=4"), on("nccl", Unset, "N=1")), class: class.NCCLSystem,
		change: func(h *History, _ *failure.Verdict) { h.InForce.Rules = []int{0} }, restart: true, changes: "N=1"},
	{name: "a rule's own wait", rules: rules(3, Rule{Class: "oom.foreign_process", Attempts: Unset, WaitMemory: 120}), class: class.OOMForeign, restart: true, reason: "waiting for it up to 2m"},

	{name: "fragmentation without a rule is not restarted", rules: rules(3), class: class.OOMFragmentation, reason: `on "oom" {} would have muster try an allocator setting`},
	{name: "unless it had come far", rules: rules(3), class: class.OOMFragmentation, failed: new(with(failed("oom.fragmentation", 0, 7200), func(p *Past) { p.Steps = at(900) })), restart: true},
	{name: "on oom {}: fragmentation with a modern torch", rules: rules(3, on("oom", Unset)), class: class.OOMFragmentation, change: torch("2.4.0+cu121"), restart: true, changes: "allocator.expandable_segments=true"},
	{name: "on oom {}: fragmentation with an old torch", rules: rules(3, on("oom", Unset)), class: class.OOMFragmentation, change: torch("1.13.1"), restart: true, changes: "allocator.max_split_size=128MiB"},
	{name: "on oom {}: fragmentation with a torch that is not known", rules: rules(3, on("oom", 2)), class: class.OOMFragmentation, restart: true, changes: "allocator.max_split_size=128MiB"},
	{name: "on oom {}: fragmentation under MPS", rules: rules(3, on("oom", Unset)), class: class.OOMFragmentation, change: func(h *History, _ *failure.Verdict) { h.Torch, h.MPS = "2.4", true }, restart: true, changes: "allocator.max_split_size=128MiB"},
	{name: "on oom {}: fragmentation with the setting already", rules: rules(3, on("oom", Unset)), class: class.OOMFragmentation, change: func(h *History, _ *failure.Verdict) { h.Torch, h.Expandable = "2.4", true }, reason: "although the job file has allocator { expandable_segments }"},
	{name: "on oom {}: fragmentation again", rules: rules(3, on("oom", Unset)), class: class.OOMFragmentation, change: func(h *History, _ *failure.Verdict) { h.Torch, h.InForce.Remedy = "2.4", Expandable }, reason: "although muster had set allocator { expandable_segments = true }"},
	{name: "on oom {}: capacity needs the user", rules: rules(3, on("oom", Unset)), class: class.OOMCapacity, reason: "cannot be bettered by a setting that muster could choose"},
	{name: "on oom {}: capacity that one setting may save", rules: rules(3, on("oom", Unset)), class: class.OOMCapacity,
		change: func(h *History, v *failure.Verdict) { h.Torch, v.Restart = "2.9.1", class.WithConfig }, restart: true, changes: "allocator.expandable_segments=true"},
	{name: "on oom {}: somebody else's memory is waited for", rules: rules(3, on("oom", Unset)), class: class.OOMForeign, restart: true, reason: "waiting for it up to 10m"},
	{name: "on oom {}: a sick GPU is named", rules: rules(3, on("oom", Unset)), class: class.OOMUnknown, change: func(_ *History, v *failure.Verdict) { v.Restart = class.OtherHost }, reason: "oom.unknown on gpu07 may be the GPU's"},
	{name: "on oom.capacity with attempts is the user's word", rules: rules(3, on("oom.capacity", 1)), class: class.OOMCapacity, restart: true},
	{name: "somebody else's memory without a rule", rules: rules(3), class: class.OOMForeign, reason: `wait_memory = "10m"`},

	{name: "a program that always ends at once is tried twice", rules: rules(3), class: class.Exit, past: []Past{failed("exit", 0, 0.1, "status 1")}, failed: new(failed("exit", 0.2, 0.3, "status 1")), reason: "the same failure came before"},
	{name: "a single death by a signal is restarted", rules: rules(3), class: class.KilledUnknown, failed: new(failed("killed.unknown", 0, 30)), restart: true},
}

func torch(version string) func(*History, *failure.Verdict) {
	return func(h *History, _ *failure.Verdict) { h.Torch = version }
}

func TestDecisions(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			v := verdictOf(r.class)
			h := History{Past: r.past, Failed: failed(r.class, 20, 25), Host: "gpu07"}
			if r.failed != nil {
				h.Failed = *r.failed
			}
			if r.change != nil {
				r.change(&h, &v)
			}
			d := Decide(h, v, r.rules, 30)
			if d.Restart != r.restart || d.After != r.after || !strings.Contains(d.Reason, r.reason) || d.Reason == "" {
				t.Errorf("%v after %v: %s\nwant %v after %v: %s", d.Restart, d.After, d.Reason, r.restart, r.after, r.reason)
			}
			if changes := written(d.Changes); changes != r.changes {
				t.Errorf("changes %s, want %s", changes, r.changes)
			}
			check(t, d)
		})
	}
}

func written(changes map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		words = append(words, name+"="+changes[name])
	}
	return strings.Join(words, ",")
}

// check: a decision does not contradict itself.
func check(t *testing.T, d Decision) {
	t.Helper()
	if !d.Restart && (d.After != 0 || d.WaitMemory != 0 || d.Changes != nil || d.Rule != Unset) {
		t.Errorf("an end with a restart's settings: %+v", d)
	}
	if d.Restart && (d.Host != "" || d.Advice != nil || !strings.HasPrefix(d.Reason, "restart ")) {
		t.Errorf("a restart with the words of an end: %+v", d)
	}
}

// A run is played to its end with failures, rules and times of chance: it ends, and never
// has more restarts within a window than its budget.
func TestTheBudgetIsNeverExceeded(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		rules := anyRules(r)
		h := History{Torch: []string{"", "1.13", "2.6"}[r.IntN(3)]}
		now, restarts := 0.0, 0
		for {
			name := class.Classes[r.IntN(len(class.Classes))].Name
			h.Failed = failed(name, now, now+r.Float64()*200, []string{"a", "b"}[r.IntN(2)])
			if r.IntN(2) == 0 {
				h.Failed.Steps = at(r.IntN(50))
			}
			now = h.Failed.Ended
			d := Decide(h, verdictOf(name), rules, now)
			check(t, d)
			if !d.Restart {
				break
			}
			if restarts++; rules == nil || restarts > rules.Attempts {
				t.Fatalf("seed %d: restart %d of %+v: %s", seed, restarts, rules, d.Reason)
			}
			h.Failed.Rule, h.InForce = d.Rule, d.InForce
			h.Past = append(h.Past, h.Failed)
			now += d.After
		}
	}
}

// anyRules has no window and no health, so that its budget is for the whole run.
func anyRules(r *rand.Rand) *Rules {
	if r.IntN(5) == 0 {
		return nil
	}
	rules := &Rules{Attempts: r.IntN(6), Backoff: 5, HealthyAfter: 1e9}
	for range r.IntN(5) {
		rule := on(append(class.Names(), class.Groups()...)[r.IntN(len(class.Classes)+4)], r.IntN(4)-1)
		if r.IntN(2) == 0 {
			rule.Settings = map[string]string{"A": fmt.Sprint(r.IntN(3))}
		}
		if r.IntN(4) == 0 {
			rule.WaitMemory = 60
		}
		rules.On = append(rules.On, rule)
	}
	return rules
}

func TestWithoutABlockNothingIsEverRestarted(t *testing.T) {
	for _, c := range class.Classes {
		if d := Decide(History{Failed: failed(c.Name, 0, 1)}, verdictOf(c.Name), nil, 1); d.Restart || d.Reason == "" {
			t.Errorf("%s: %+v", c.Name, d)
		}
	}
}

func TestRemediesAreSettingsOfTheAllocator(t *testing.T) {
	if s := Expandable.Allocator(); s == nil || !s.ExpandableSegments.Value || s.MaxSplitSize != nil {
		t.Errorf("%+v", s)
	}
	if s := MaxSplit.Allocator(); s == nil || s.MaxSplitSize.Value != 128<<20 || s.ExpandableSegments != nil {
		t.Errorf("%+v", s)
	}
	if NoRemedy.Allocator() != nil {
		t.Error("no remedy has settings")
	}
}
