package boundaries

import (
	"maps"
	"slices"
	"testing"
)

func TestNoPackageImportsWhatItMustNotKnow(t *testing.T) {
	g := load(t)
	for _, r := range rules {
		for _, v := range r.violations(g) {
			t.Error(v)
		}
	}
	for _, o := range onlies {
		for _, v := range o.violations(g) {
			t.Error(v)
		}
	}
}

// patterns lists all that the rules name.
func patterns() []string {
	named := map[string]bool{}
	for _, r := range rules {
		for _, p := range slices.Concat(r.from, r.not) {
			named[p] = true
		}
	}
	for _, o := range onlies {
		for _, p := range append(o.by, o.target) {
			named[p] = true
		}
	}
	return slices.Sorted(maps.Keys(named))
}

func TestRulesNameWhatIsThere(t *testing.T) {
	g := load(t)
	for _, path := range standardButUnused {
		g.add(path)
	}
	for _, p := range patterns() {
		if len(g.matching(p)) == 0 && !slices.Contains(later, p) {
			t.Errorf("a rule names %s, which is not there: a slip, or add it to later", p)
		}
	}
}

// standardButUnused are packages of the standard library which rules name and nothing
// here imports.
var standardButUnused = []string{"net/http/httptest", "runtime/cgo", "html/template"}

// Each rule is broken on purpose, in a copy of the graph, for each package and each
// ban that it has.
func TestEveryRuleCanFail(t *testing.T) {
	real := load(t)
	for _, r := range rules {
		for _, from := range r.from {
			for _, not := range r.not {
				if len(r.violations(broken(real, from, not, r.direct))) == 0 {
					t.Errorf("%s may import %s unnoticed", from, not)
				}
			}
		}
	}
	for _, o := range onlies {
		g := maps.Clone(real)
		g.add("launcher/stranger", example(o.target))
		if len(o.violations(g)) == 0 {
			t.Errorf("launcher/stranger may import %s unnoticed", o.target)
		}
	}
}

// broken returns a graph in which a package imports what it must not, by way of
// another package unless the ban is on the import itself.
func broken(g graph, from, not string, direct bool) graph {
	g = maps.Clone(g)
	if direct {
		g.add(example(from), example(not))
		return g
	}
	g.add(example(from), "somewhere/between")
	g.add("somewhere/between", example(not))
	return g
}

// example is a package that a pattern stands for.
func example(pattern string) string {
	if n := len(pattern) - len("/..."); n > 0 && pattern[n:] == "/..." {
		return pattern[:n] + "/below"
	}
	return pattern
}
