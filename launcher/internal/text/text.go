// Package text writes numbers and lists as people read them, and guesses what a misspelt
// name was meant to be.
package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// GiB writes bytes in GiB: "1.5 GiB".
func GiB[N number](bytes N) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }

// Bytes writes bytes in GiB or, where they are few, in a smaller unit: "79.6 GiB", "32 MiB".
func Bytes[N number](bytes N) string {
	n := float64(bytes)
	switch {
	case n >= 10000*gib:
		return fmt.Sprintf("%.1f TiB", n/tib)
	case n >= 100*mib || n == 0:
		return GiB(bytes)
	case n >= mib:
		return fmt.Sprintf("%.4g MiB", n/mib)
	}
	return fmt.Sprintf("%.4g KiB", n/kib)
}

// Size writes bytes in the largest unit, from bytes to GiB, with so many decimals of a GiB.
func Size[N number](bytes N, decimals int) string {
	n := float64(bytes)
	switch {
	case n >= gib:
		return fmt.Sprintf("%.*f GiB", decimals, n/gib)
	case n >= mib:
		return fmt.Sprintf("%.0f MiB", n/mib)
	case n >= kib:
		return fmt.Sprintf("%.0f KiB", n/kib)
	}
	return fmt.Sprintf("%.0f bytes", n)
}

// Ranges writes numbers in ascending order as the kernel writes lists of CPUs: "0-3,8".
func Ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", numbers[j])
		}
		i = j + 1
	}
	return b.String()
}

// Numbered names things by their numbers, in any order: "rank 3", "ranks 0-3,8".
func Numbered(noun string, numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("%s %d", noun, numbers[0])
	}
	return noun + "s " + Ranges(slices.Sorted(slices.Values(numbers)))
}

// List joins names; of many it names the first ones: "a, b and 3 more".
func List(names []string, limit int) string {
	if n := len(names); n > limit {
		return strings.Join(names[:limit], ", ") + fmt.Sprintf(" and %d more", n-limit)
	}
	return strings.Join(names, ", ")
}

// Nearest is the candidate that a name is probably a slip of, at most so many letters apart;
// "" where there is none. Upper and lower case are the same.
func Nearest(name string, candidates []string, distance int) string {
	best, bestDistance := "", distance+1
	for _, candidate := range candidates {
		d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(candidate), nil)
		if d < bestDistance && d < len(candidate) {
			best, bestDistance = candidate, d
		}
	}
	return best
}
