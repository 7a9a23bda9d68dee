package quantity

import (
	"math/big"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/launcher/memory"
)

// countForm is a number and a unit; its length is bounded, as it is made exact.
var countForm = regexp.MustCompile(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)$`)

// ParseCount reads a number of parameters, such as 7B. problem is what to add to a message
// where it is none.
func ParseCount(text string) (number *big.Rat, problem string) {
	parts := countForm.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return nil, "."
	}
	number, _ = new(big.Rat).SetString(parts[1]) // the form has nothing else
	if parts[2] == "" {
		return number, ""
	}
	for _, unit := range memory.Units {
		if strings.EqualFold(parts[2], unit.Name) {
			return number.Mul(number, new(big.Rat).SetUint64(unit.Size)), ""
		}
	}
	return nil, ": the units are K, M, B (1e9) and T."
}
