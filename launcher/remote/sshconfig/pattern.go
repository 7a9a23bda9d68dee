package sshconfig

import "strings"

// glob reports whether text matches a pattern with * and ?.
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, mark := -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchList reports whether text matches one of the patterns and none of the
// negated ones.
func matchList(patterns []string, text string) bool {
	found := false
	for _, p := range patterns {
		negated := strings.HasPrefix(p, "!")
		if !glob(strings.TrimPrefix(p, "!"), text) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}
