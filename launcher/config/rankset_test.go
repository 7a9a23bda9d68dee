package config

import "testing"

func TestRankSet(t *testing.T) {
	for text, test := range map[string]struct {
		has, lacks []int
		written    string
	}{
		"all":      {has: []int{0, 1000}, written: "all"},
		" none ":   {lacks: []int{0, 1}, written: "none"},
		"0":        {has: []int{0}, lacks: []int{1}, written: "0"},
		"0, 3-5,3": {has: []int{0, 3, 4, 5}, lacks: []int{1, 2, 6}, written: "0,3-5,3"},
	} {
		set, err := ParseRankSet(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, rank := range test.has {
			if !set.Has(rank) {
				t.Errorf("%q lacks %d", text, rank)
			}
		}
		for _, rank := range test.lacks {
			if set.Has(rank) {
				t.Errorf("%q has %d", text, rank)
			}
		}
		if set.String() != test.written {
			t.Errorf("%q is written %q", text, set)
		}
	}
}

func TestRankSetErrors(t *testing.T) {
	for _, text := range []string{"", "x", "1-", "-1", "3-1", "1,,2", "1.5", "all,1", "0-99999999999999999999"} {
		if set, err := ParseRankSet(text); err == nil {
			t.Errorf("%q was taken as %s", text, set)
		}
	}
}
