package config

import (
	"fmt"
	"strconv"
	"strings"
)

// RankSet is a set of global ranks. The zero value holds every rank.
type RankSet struct {
	limited bool
	spans   [][2]int
}

// ParseRankSet reads "all", "none", or a list such as "0,3-5".
func ParseRankSet(s string) (RankSet, error) {
	switch strings.TrimSpace(s) {
	case "all":
		return RankSet{}, nil
	case "none":
		return RankSet{limited: true}, nil
	}
	set := RankSet{limited: true}
	for _, part := range strings.Split(s, ",") {
		span, err := parseSpan(strings.TrimSpace(part))
		if err != nil {
			return RankSet{}, fmt.Errorf("ranks %q: %w", s, err)
		}
		set.spans = append(set.spans, span)
	}
	return set, nil
}

func parseSpan(part string) ([2]int, error) {
	low, high, isRange := strings.Cut(part, "-")
	if !isRange {
		high = low
	}
	first, err1 := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	switch {
	case err1 != nil || err2 != nil || first < 0:
		return [2]int{}, fmt.Errorf("%q is neither a rank nor a range; write all, none, or a list such as 0,3-5", part)
	case last < first:
		return [2]int{}, fmt.Errorf("%q runs backwards", part)
	}
	return [2]int{first, last}, nil
}

// Has reports whether rank is in the set.
func (s RankSet) Has(rank int) bool {
	if !s.limited {
		return true
	}
	for _, span := range s.spans {
		if span[0] <= rank && rank <= span[1] {
			return true
		}
	}
	return false
}

// In returns the ranks below size that are in the set.
func (s RankSet) In(size int) []int {
	var ranks []int
	for rank := range size {
		if s.Has(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// String is the set as ParseRankSet reads it.
func (s RankSet) String() string {
	switch {
	case !s.limited:
		return "all"
	case len(s.spans) == 0:
		return "none"
	}
	parts := make([]string, len(s.spans))
	for i, span := range s.spans {
		parts[i] = strconv.Itoa(span[0])
		if span[1] != span[0] {
			parts[i] += "-" + strconv.Itoa(span[1])
		}
	}
	return strings.Join(parts, ",")
}

// Last is the highest rank that the set names, -1 where it names none.
func (s RankSet) Last() int {
	last := -1
	for _, span := range s.spans {
		last = max(last, span[1])
	}
	return last
}
