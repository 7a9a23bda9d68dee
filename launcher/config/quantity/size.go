// Package quantity reads and writes quantities that a job file has as text: sizes, durations and
// numbers of parameters.
package quantity

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/config/diagnostic"
)

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// BareSizeAdvice is what may be meant by a number without unit: nvidia-smi and programs
// show MiB and bytes, people think in GiB.
func BareSizeAdvice(n *big.Float) string {
	if n.Sign() <= 0 || !n.IsInt() {
		return `a number with KiB, MiB, GiB or TiB, such as "8GiB"`
	}
	bytes, accuracy := n.Uint64()
	switch {
	case accuracy != big.Exact || bytes >= 1<<50:
		return `a number with KiB, MiB, GiB or TiB, such as "8GiB"`
	case bytes < 1<<10:
		return fmt.Sprintf(`"%dGiB"`, bytes)
	case bytes < 1<<20:
		return fmt.Sprintf(`"%dMiB"`, bytes)
	}
	return fmt.Sprintf("%q for bytes", FormatSize(bytes>>20<<20))
}

// sizeForm is a number and a unit; the number's length is bounded, as it is made exact.
var sizeForm = regexp.MustCompile(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)$`)

// ParseSize reads a size in bytes: a number, which may have a fraction, and a unit of
// 1024s. The result is exact.
func ParseSize(text string) (uint64, error) {
	parts := sizeForm.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return 0, fmt.Errorf("%s is not a size: write a number with KiB, MiB, GiB or TiB, such as \"8GiB\"", diagnostic.Quoted(text))
	}
	number, unit := parts[1], parts[2]
	for _, known := range sizeUnits {
		if unit == known.name {
			return exactSize(number, unit, known.bytes)
		}
	}
	if unit == "" {
		n, _, err := big.ParseFloat(number, 10, 256, big.ToNearestEven)
		if err != nil {
			return 0, fmt.Errorf("%s is not a size: write a number with its unit, such as \"8GiB\"", diagnostic.Quoted(text))
		}
		return 0, fmt.Errorf("%s has no unit: write %s", diagnostic.Quoted(text), BareSizeAdvice(n))
	}
	for _, known := range sizeUnits {
		if strings.EqualFold(unit[:1], known.name[:1]) && otherUnit.MatchString(unit) {
			return 0, fmt.Errorf("%s has another unit than KiB, MiB, GiB and TiB, which count in 1024s as nvidia-smi does: write \"%s%s\"", diagnostic.Quoted(text), number, known.name)
		}
	}
	return 0, fmt.Errorf("%s has no known unit: the units are KiB, MiB, GiB and TiB", diagnostic.Quoted(text))
}

// otherUnit is what else units of sizes are called: GB, G, Gib, gb.
var otherUnit = regexp.MustCompile(`^(?i:[kmgt](?:i?b?))$`)

// exactSize is number times unit in bytes.
func exactSize(number, unit string, bytes uint64) (uint64, error) {
	size, _ := new(big.Rat).SetString(number) // the form has nothing else
	size.Mul(size, new(big.Rat).SetInt(new(big.Int).SetUint64(bytes)))
	switch {
	case !size.IsInt():
		whole := new(big.Int).Quo(size.Num(), size.Denom())
		if !whole.IsUint64() || whole.Uint64() < 1<<10 {
			return 0, fmt.Errorf("%s%s is no whole number of bytes: write a whole number with KiB, MiB, GiB or TiB", number, unit)
		}
		kib := whole.Uint64() >> 10 << 10
		if kib >= 1<<30 {
			kib = kib >> 20 << 20
		}
		return 0, fmt.Errorf("%s%s is no whole number of bytes: write %q", number, unit, FormatSize(kib))
	case !size.Num().IsUint64():
		return 0, fmt.Errorf("%s%s is more than any machine has: write a smaller number, or a smaller unit", number, unit)
	}
	return size.Num().Uint64(), nil
}

// FormatSize writes a size in the largest unit that takes a whole number.
func FormatSize(bytes uint64) string {
	for _, unit := range sizeUnits {
		if bytes >= unit.bytes && bytes%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", bytes/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Duration writes a duration without the zero parts at its end.
func Duration(d time.Duration) string {
	s := d.String()
	if d >= time.Minute {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
