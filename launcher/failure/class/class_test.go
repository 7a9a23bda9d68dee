package class

import (
	"slices"
	"testing"
)

func TestARuleStandsForAClassAndWhatIsBelowIt(t *testing.T) {
	for _, c := range []struct {
		rule, name string
		want       bool
	}{
		{"oom", OOMHost, true}, {"oom.host", OOMHost, true}, {"oom.ho", OOMHost, false}, {"oom.", OOMHost, false}, {"", OOMHost, false}, {"host", HostLost, true},
		{"gpu.xid", "gpu.xid.63", true}, {"gpu.xid.6", "gpu.xid.63", false}, {"oom.host", "oom", false},
	} {
		if got := Matches(c.rule, c.name); got != c.want {
			t.Errorf("%q for %q: %v", c.rule, c.name, got)
		}
	}
	for rule, want := range map[string]bool{"oom": true, "oom.shm": true, "gpu.xid.63": true, "gpu.xid.063": false, "gpu.xid.x": false, "gpu.xid": true, "oo": false, "": false, "exit": true} {
		if got := Known(rule); got != want {
			t.Errorf("%q is known: %v", rule, got)
		}
	}
}

func TestEveryXidHasOneRowAndAClass(t *testing.T) {
	seen := map[int]bool{}
	for _, row := range xidTable {
		if _, known := Find(row.Class); !known || row.Meaning == "" || row.Verdict == "" {
			t.Errorf("%+v", row)
		}
		for _, n := range row.numbers {
			if seen[n] {
				t.Errorf("%d stands in two rows", n)
			}
			seen[n] = true
		}
	}
	for number, want := range map[int]Xid{13: {Class: GPUAppFault, Verdict: XidProgram}, 45: {Class: GPUXid, Verdict: XidEffect}, 63: {Class: GPUECC, Verdict: XidIgnore},
		79: {Class: GPULost, Verdict: XidStop}, 94: {Class: GPUECC, Verdict: XidRestart}, 149: {Class: GPUNVLink, Verdict: XidStop}, 12345: {Class: GPUXid, Verdict: XidRestart}} {
		if got := FindXid(number); got.Class != want.Class || got.Verdict != want.Verdict {
			t.Errorf("%d: %+v", number, got)
		}
	}
}

func TestGroupsAreWhatSeveralClassesBeginWith(t *testing.T) {
	for _, group := range []string{"oom", "nccl", "gpu", "crash", "gloo"} {
		if !slices.Contains(Groups(), group) {
			t.Errorf("%s is missing in %v", group, Groups())
		}
	}
}
