package plans

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// mpsLines say how ranks share GPUs by MPS: a line for all hosts, as their shares are the
// same.
func mpsLines(p *plan.Plan) []string {
	block := p.Config.MPS
	if block == nil {
		return nil
	}
	daemon := "each GPU has an MPS daemon of the run's own"
	if block.Existing {
		var folders []string
		for i := range p.Hosts {
			if pipe := p.ExistingPipe(i); !slices.Contains(folders, pipe) {
				folders = append(folders, pipe)
			}
		}
		daemon = "the MPS daemon that is there already, in " + firstOf(folders)
	}
	line := fmt.Sprintf("MPS: %s on each GPU; %s", plural.Of(block.RanksPerGPU, "rank"), daemon)
	if words := sharesOf(block.Threads, func(t float64) string { return fmt.Sprintf("%.4g %%", t) }); words != "" {
		line += "; threads at most " + words
	}
	if words := sharesOf(block.Memory, GibibytesText); words != "" {
		line += "; memory at most " + words
	}
	return []string{line}
}

// GibibytesText writes a limit of memory.
func GibibytesText(n uint64) string { return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30)) }

func sharesOf[T float64 | uint64](values []T, word func(T) string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = word(v)
	}
	return strings.Join(words, ", ")
}
