package allocator

import (
	"errors"
	"slices"
	"strings"
)

// Check says what the version of torch makes of a string, "" for a version that is not known. No finding: it is read as
// it is meant.
func Check(text, torch string) []Finding {
	v := parseVersion(torch)
	var found []Finding
	if strings.ContainsAny(text, "\t\n\v\f\r") && v.known() && !v.has(readsGeneral) {
		found = append(found, finding(CodeMalformed, Fail, "", "%s takes a tab or line end for a part of the word: leave it out", v))
	}
	pairs, err := Parse(text)
	if problem, ok := errors.AsType[*ParseError](err); ok {
		return append(found, finding(CodeMalformed, Fail, "", "%s", problem.Problem))
	}
	for _, pair := range pairs {
		found = append(found, checkPair(pair, pairs, v)...)
	}
	return append(found, checkTogether(pairs)...)
}

// checkPair is what is wrong with one of pairs.
func checkPair(pair Pair, pairs Pairs, v version) []Finding {
	k := keyNamed(pair.Key)
	if found := checkKey(pair.Key, k, v); found != nil {
		return found
	}
	c := &checker{version: v, pair: pair, pairs: pairs}
	if !v.known() {
		c.version = newest
	}
	checks[k.value](c, pair.Value)
	return c.found
}

// checkKey is why the version stops at a key, nil where it does not.
func checkKey(name string, k *key, v version) []Finding {
	code, format := CodeVersion, ""
	var args []any
	switch {
	case k == nil:
		near := suggestion(name)
		if near != "" {
			near = ": did you mean " + near + "?"
		}
		code, format, args = CodeUnknownKey, "torch stops at the setting %q, which it does not know%s", []any{name, near}
	case !v.known() || k.in(v):
		return nil
	case !v.has(k.since) && v.before && v.minor == k.since.minor && v.major == k.since.major:
		format, args = "%s is new in %s, and a build on the way there may not have it and stop", []any{name, k.since}
	case !v.has(k.since):
		format, args = "%s stops at %s, which is there since %s", []any{v, name, k.since}
	default:
		format, args = "%s stops at %s, which torch had before %d.%d", []any{v, name, k.until.major, k.until.minor}
	}
	return []Finding{finding(code, Fail, name, format, args...)}
}

// checkTogether finds settings that others make idle.
func checkTogether(pairs Pairs) []Finding {
	var found []Finding
	backend, _ := pairs.Get("backend")
	segments, _ := pairs.Get("expandable_segments")
	async := backend == "cudaMallocAsync" || backend == "hipMallocAsync"
	for _, pair := range pairs {
		reason := ""
		switch k := keyNamed(pair.Key); {
		case k == nil || pair.Value == "False":
		case async && k.native:
			reason = "the backend cudaMallocAsync ignores it"
		case segments == "True" && k.idle != "":
			reason = k.idle
		case k.needs != "":
			if value, set := pairs.Get(k.needs); !set || value == "False" {
				reason = "it does something beside " + k.needs + " only"
			}
		}
		if reason != "" {
			found = append(found, finding(CodePair, Warn, pair.Key, "%s has no effect: %s", pair.Key, reason))
		}
	}
	return found
}

// Given is a variable that somebody has set.
type Given struct {
	Name, Text string
	Source     string // in words, or FILE:LINE
}

// CheckVars says what the version of torch makes of variables, of which some may be set that it does not read.
func CheckVars(vars []Given, torch string) []Finding {
	v := parseVersion(torch)
	read, others := inForce(vars, v)
	var found []Finding
	for _, other := range others {
		switch {
		case read == nil:
			found = append(found, finding(CodeNames, Warn, "", "%s (%s) is not read by %s: set %s", other.Name, other.Source, v, v.read()[0]))
		case read.Text != other.Text:
			found = append(found, finding(CodeNames, Warn, "", "%s is %q (%s) and %s %q (%s): %s reads the first of them alone",
				read.Name, read.Text, read.Source, other.Name, other.Text, other.Source, v))
		}
	}
	if read == nil {
		return found
	}
	for _, f := range Check(read.Text, torch) {
		f.Message = read.Name + " (" + read.Source + "): " + f.Message
		found = append(found, f)
	}
	return found
}

// inForce is the variable that the version reads, and those that it does not.
func inForce(vars []Given, v version) (read *Given, others []Given) {
	rank := func(g Given) int { return slices.Index(v.read(), g.Name) }
	for _, g := range vars {
		if i := rank(g); i >= 0 && (read == nil || i <= rank(*read)) {
			read = &g
		}
	}
	for _, g := range vars {
		if slices.Contains(Names, g.Name) && (read == nil || g.Name != read.Name) {
			others = append(others, g)
		}
	}
	return read, others
}
