package memory

import (
	"fmt"
	"math/bits"
	"strings"
)

// mulDiv is a*b/c, where a is at most c.
func mulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}

// bytesOf writes thousandths of a byte.
func bytesOf(milliBytes uint64) string {
	text := fmt.Sprintf("%d.%03d", milliBytes/milli, milliBytes%milli)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// Count writes a number of parameters as people do: 7B, 1.5B, 350M.
func Count(n uint64) string {
	for _, unit := range Units {
		if n >= unit.Size {
			text := fmt.Sprintf("%d.%02d", n/unit.Size, n%unit.Size*100/unit.Size)
			return strings.TrimRight(strings.TrimRight(text, "0"), ".") + unit.Name
		}
	}
	return fmt.Sprint(n)
}

// Unit is one of numbers of parameters.
type Unit struct {
	Name string
	Size uint64
}

// Units are those of numbers of parameters, the largest first.
var Units = []Unit{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}}
