package config

import (
	"strings"

	"github.com/agext/levenshtein"
)

// nearest is the candidate that name is probably a slip of, or "".
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 3
	for _, candidate := range candidates {
		distance := levenshtein.Distance(strings.ToLower(name), strings.ToLower(candidate), nil)
		if distance < bestDistance && distance < len(candidate) {
			best, bestDistance = candidate, distance
		}
	}
	return best
}
