package rendezvous

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

// meeting is one of three members whose first has two addresses, and one that cannot be chosen.
func meeting() *Rendezvous {
	return New([]string{"a", "b", "c"}, []Address{{IP: "10.0.0.1", NIC: "eth0"}, {IP: "10.1.0.1", NIC: "eth1"}, {IP: "172.17.0.1", Passed: "docker0"}})
}

// reach has a member report on the two addresses; "": it reaches it.
func (r *Rendezvous) reach(member int, errors ...string) {
	var results []link.Reach
	for i, why := range errors {
		results = append(results, link.Reach{Addr: r.addresses[i].IP + ":4000", Local: "10.9.9.9", Error: why})
	}
	r.AddReached(member, results, len(errors) == 2)
}

func TestMaster(t *testing.T) {
	for name, c := range map[string]struct {
		reached [][]string
		master  string
		err     string
	}{
		"the best that all reach":             {[][]string{{"", ""}, {"", ""}, {"", ""}}, "10.0.0.1", ""},
		"the next where one fails":            {[][]string{{"", ""}, {"", ""}, {"no route", ""}}, "10.1.0.1", ""},
		"a better one is waited for":          {[][]string{{"", ""}, {"", ""}, {}}, "", ""},
		"no longer once it cannot be reached": {[][]string{{"", ""}, {"no route", ""}, {"", ""}}, "10.1.0.1", ""},
		"none":                                {[][]string{{"", ""}, {"no route", ""}, {"", "refused"}}, "", "10.0.0.1 (eth0) from b: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			r := meeting()
			for i, errors := range c.reached {
				r.reach(i, errors...)
			}
			err := r.Choose()
			if r.Master() != c.master || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v", r.Master(), err)
			}
		})
	}
}

func TestCommit_needsThePortOfTheRound(t *testing.T) {
	r := meeting()
	for i := range 3 {
		r.reach(i, "", "")
	}
	_ = r.Choose()
	r.SetPort(1, 20000) // of another round
	if r.MayCommit() {
		t.Error("it commits without a port")
	}
	r.SetPort(0, 20000)
	if !r.MayCommit() {
		t.Error("it does not commit")
	}
	if r.NextRound(); r.MayCommit() {
		t.Error("the next round commits with the port of the one before")
	}
	if !New([]string{"a"}, nil).MayCommit() {
		t.Error("who does not meet needs no port")
	}
}

func TestSilent(t *testing.T) {
	r := meeting()
	r.Join(0)
	r.Join(1)
	start := link.Instant(time.Hour)
	heard := func(member int) (link.Instant, bool) {
		return start.Add(time.Duration(member) * 30 * time.Second), member < 2
	}
	if all := r.Silent(start, 30*time.Second, heard); len(all) != 0 {
		t.Errorf("%v at once", all)
	}
	all := r.Silent(start.Add(36*time.Second), 30*time.Second, heard)
	if len(all) != 2 || all[0].Member != 0 || all[0].Last != start || all[1].Member != 2 || all[1].Last != 0 {
		t.Errorf("%v", all)
	}
}
