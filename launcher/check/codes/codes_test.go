package codes

import (
	"regexp"
	"slices"
	"testing"
)

func TestTheTableOfCodesHolds(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, c := range All {
		if !form.MatchString(c.Name) || seen[c.Name] || c.Meaning == "" {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
		if !slices.Contains(Severities, c.Severity) || c.Worst != "" && slices.Index(Severities, c.Worst) >= slices.Index(Severities, c.Severity) {
			t.Errorf("%s: severity %s, worst %s", c.Name, c.Severity, c.Worst)
		}
		if c.Placement && c.When != After {
			t.Errorf("%s is about placement, and looked for %s", c.Name, c.When)
		}
		if found, ok := Find(c.Name); !ok || found != c {
			t.Errorf("%s is not found", c.Name)
		}
	}
	if _, ok := Find("nothing"); ok || len(Names()) != len(All) || len(Names(Before, After, Planning, Asked)) != len(All) {
		t.Error("names and table differ")
	}
}
