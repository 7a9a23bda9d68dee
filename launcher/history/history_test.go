package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStore_FindsARunByItsIDOrTheBeginning(t *testing.T) {
	s := Store{t.TempDir()}
	if runs, err := (Store{filepath.Join(s.dir, "none")}).All(); err != nil || len(runs) != 0 {
		t.Errorf("no folder: %v, %v", runs, err)
	}
	if _, err := s.Find("-"); err == nil {
		t.Error("an empty store has a latest run")
	}
	for i, id := range []string{"b-11", "a-12", "a-1", "a-23"} {
		if err := s.Write(Run{ID: id, Started: time.Unix(int64(i), 0), Hosts: []Host{{Name: "h"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "torn.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, id, err string }{
		{"-", "a-23", ""}, {"a-1", "a-1", ""}, {"a-2", "a-23", ""}, {"b", "b-11", ""},
		{"a", "", "could be any of a-12, a-1, a-23"}, {"c", "", `no run "c"`},
	} {
		r, err := s.Find(test.name)
		if r.ID != test.id || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v", test.name, r.ID, err)
		}
	}
}

func TestStore_WritesInPlaceOfWhatWasKept(t *testing.T) {
	s := Store{t.TempDir()}
	r := Run{ID: "a-1", Hosts: []Host{{Name: "h", Ranks: 2}}}
	for _, outcome := range []string{"", "ok"} {
		if r.Outcome = outcome; s.Write(r) != nil {
			t.Fatal("not written")
		}
	}
	runs, err := s.All()
	if err != nil || len(runs) != 1 || runs[0].Outcome != "ok" {
		t.Errorf("%+v, %v", runs, err)
	}
	if err := (Store{}).Write(r); err != nil {
		t.Errorf("a store that was not opened: %v", err)
	}
}

func TestRun_HostOfARank(t *testing.T) {
	r := Run{Hosts: []Host{{Name: "a", Ranks: 2}, {Name: "b", FirstRank: 2, Ranks: 1}}}
	for rank, want := range []string{"a", "a", "b", ""} {
		if h, found := r.HostOf(rank); h.Name != want || found != (want != "") {
			t.Errorf("rank %d: %q, %v", rank, h.Name, found)
		}
	}
	if r.Tasks = 5; r.WorldSize() != 5 {
		t.Errorf("%d tasks", r.WorldSize())
	}
	if _, found := r.HostOf(0); found {
		t.Error("a task is on a host before it is placed")
	}
}
