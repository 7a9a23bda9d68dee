package config

import (
	"strings"
	"testing"
)

// TestGroupsThatDoNotNest: the advice names sizes that would.
func TestGroupsThatDoNotNest(t *testing.T) {
	for written, want := range map[string]string{
		"{ tensor = 6, node = 8 }":    "write node = 12, or tensor = 2.",
		"{ tensor = 4, node = 7 }":    "write node = 8.",
		"{ a = 1048575, b = 524289 }": "write a = 524289",
		"merge({ x = 4 }, { y = 6 })": "write y = 8, or x = 2.",
	} {
		_, src, diags := onRanks("groups = " + written)
		if len(diags) != 1 || diags[0].Summary != "Groups do not nest" || !strings.Contains(diags[0].Detail, want) {
			t.Errorf("groups = %s gives\n%swant %s", written, printed(src, diags), want)
		}
	}
}

func TestGroupsAreSorted(t *testing.T) {
	job, src, diags := onRanks(`groups = { b = 2, a = 2, "node" = "8", (join("", ["t", "p"])) = 4 }`)
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	names := ""
	for _, group := range job.Placement.Groups {
		names += group.Name + " "
	}
	if names != "node tp a b " {
		t.Errorf("got %s", names)
	}
}
