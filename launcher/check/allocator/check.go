package allocator

import (
	"errors"
	"slices"
	"strings"
)

// Check says what the version of torch makes of a string, "" for a version that is not
// known. No finding: it is read as it is meant.
func Check(text, torch string) []Finding {
	v := parseVersion(torch)
	found := checkSpaces(text, v)
	pairs, err := Parse(text)
	if problem, ok := errors.AsType[*ParseError](err); ok {
		f := finding(CodeMalformed, Fail, "", "%s", problem.Problem)
		f.At = problem.At
		return append(found, f)
	}
	for i := range pairs {
		found = append(found, checkPair(pairs, i, v)...)
	}
	return append(found, checkTogether(pairs)...)
}

// checkSpaces finds white space that old versions take for a part of a word.
func checkSpaces(text string, v version) []Finding {
	i := strings.IndexAny(text, "\t\n\v\f\r")
	if i < 0 || !v.known() || v.has(readsGeneral) {
		return nil
	}
	f := finding(CodeMalformed, Fail, "", "%s takes a tab or line end for a part of the word: leave it out", v)
	f.At = Span{i, i + 1}
	return []Finding{f}
}

// checkPair is what is wrong with one of pairs.
func checkPair(pairs Pairs, i int, v version) []Finding {
	pair := pairs[i]
	k := keyNamed(pair.Key)
	if problem := checkKey(pair.Key, k, v); problem != nil {
		problem.At = pair.At
		return []Finding{*problem}
	}
	c := &checker{version: v, pair: pair, pairs: pairs}
	if !v.known() {
		c.version = newest
	}
	k.check(c, pair.Value)
	return c.found
}

// checkKey is why the version stops at a key, nil where it does not.
func checkKey(name string, k *key, v version) *Finding {
	var f Finding
	switch {
	case k == nil:
		f = finding(CodeUnknownKey, Fail, name, "torch stops at the setting %q, which it does not know%s", name, didYouMean(name))
	case !v.known() || k.in(v):
		return nil
	case !v.has(k.since) && v.before && v.minor == k.since.minor && v.major == k.since.major:
		f = finding(CodeVersion, Fail, name, "%s is new in torch %d.%d, and a build on the way there may not have it and stop", name, k.since.major, k.since.minor)
	case !v.has(k.since):
		f = finding(CodeVersion, Fail, name, "%s stops at %s, which is there since torch %d.%d", v, name, k.since.major, k.since.minor)
	default:
		f = finding(CodeVersion, Fail, name, "%s stops at %s, which torch had before %d.%d", v, name, k.until.major, k.until.minor)
	}
	return &f
}

func didYouMean(name string) string {
	if near := suggestion(name); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// checkTogether finds settings that others make idle.
func checkTogether(pairs Pairs) []Finding {
	var found []Finding
	set := func(key, value string) bool {
		got, is := pairs.Get(key)
		return is && got == value
	}
	async := set("backend", "cudaMallocAsync") || set("backend", "hipMallocAsync")
	for _, pair := range pairs {
		reason := ""
		switch k := keyNamed(pair.Key); {
		case k == nil || pair.Value == "False":
		case async && k.native:
			reason = "the backend cudaMallocAsync ignores it"
		case set("expandable_segments", "True") && besideSegments[pair.Key] != "":
			reason = besideSegments[pair.Key]
		case needs[pair.Key] != "" && !isOn(pairs, needs[pair.Key]):
			reason = "it does something beside " + needs[pair.Key] + " only"
		}
		if reason != "" {
			f := finding(CodePair, Warn, pair.Key, "%s has no effect: %s", pair.Key, reason)
			f.At = pair.At
			found = append(found, f)
		}
	}
	return found
}

func isOn(pairs Pairs, key string) bool {
	value, set := pairs.Get(key)
	return set && value != "False"
}

// besideSegments are settings that expandable segments make idle (should_split and
// garbage_collect_cached_blocks in CUDACachingAllocator.cpp).
var besideSegments = map[string]string{
	"max_split_size_mb":            "with expandable_segments:True blocks are split whatever their size",
	"garbage_collection_threshold": "it frees no part of expandable segments",
}

// needs are settings that do something beside another one only.
var needs = map[string]string{
	"max_non_split_rounding_mb":   "max_split_size_mb",
	"pinned_num_register_threads": "pinned_use_cuda_host_register",
}

// Given is a variable that somebody has set.
type Given struct {
	Name, Text string
	Source     string // in words, or FILE:LINE
}

// CheckVars says what the version of torch makes of variables, of which some may be set
// that it does not read.
func CheckVars(vars []Given, torch string) []Finding {
	v := parseVersion(torch)
	read, others := inForce(vars, v)
	if read == nil && len(others) == 0 {
		return nil
	}
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
