package gpus

import (
	"fmt"
	"strings"
)

// OwnCards is the scenario with cards that no other number has: machines that look alike
// have other cards all the same.
func (s *Scenario) OwnCards(number int) *Scenario {
	own := s.Clone()
	rename := func(uuid string) string {
		kind, rest, is := strings.Cut(uuid, "-") // "GPU", "MIG"
		if !is || len(rest) < 8 {
			return uuid
		}
		return kind + "-" + rest[:6] + fmt.Sprintf("%02x", number&0xff) + rest[8:]
	}
	for i := range own.GPUs {
		g := &own.GPUs[i]
		g.UUID = rename(g.UUID)
		for m := range g.MIG.Instances {
			g.MIG.Instances[m].UUID = rename(g.MIG.Instances[m].UUID)
		}
	}
	return own
}
