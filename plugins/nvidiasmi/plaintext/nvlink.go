package plaintext

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// What nvidia-smi nvlink -s says of a GPU's NVLinks as a whole.
const (
	LinksListed      = "ok"          // each one is told
	LinksInactive    = "inactive"    // all are inactive: a fault only where there is an NVSwitch or a bridge
	LinksHidden      = "mig"         // MIG mode hides them
	LinksUnsupported = "unsupported" // the product has none
	LinksUnknown     = "unknown"     // nothing, or a sentence that is not known
)

// LinkReport is what nvidia-smi nvlink -s says of one GPU.
type LinkReport struct {
	Listed
	State  string
	Links  []gpu.NVLink // of LinksListed
	Text   string       // the sentence instead of links
	Puzzle []string     // lines about links that say neither speed nor inactive
}

var (
	linkLine  = regexp.MustCompile(`^Link (\d{1,3}): *(.*)$`)
	linkSpeed = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?) *[GM]B/s$`)
)

// ParseNVLink reads the answer of nvidia-smi nvlink -s. A link is active only with a
// speed: words that are not known do not make it so.
func ParseNVLink(output []byte) []LinkReport {
	var found []LinkReport
	for text := range Lines(output) {
		if card, is := parseGPULine(text); is {
			found = append(found, LinkReport{Listed: card, State: LinksUnknown})
		} else if text != "" && len(found) > 0 {
			found[len(found)-1].read(text)
		}
	}
	return found
}

// read takes one line below the name of the GPU.
func (r *LinkReport) read(text string) {
	if m := linkLine.FindStringSubmatch(text); m != nil {
		r.State = LinksListed
		r.link(Digits(m[1]), m[2], text)
		return
	}
	lower := strings.ToLower(text)
	switch {
	case r.State == LinksListed:
		return
	case strings.Contains(lower, "all links are inactive"):
		r.State = LinksInactive
	case strings.Contains(lower, "mig mode"):
		r.State = LinksHidden
	case strings.Contains(lower, "not have or support nvlink") || strings.Contains(lower, "not supported"):
		r.State = LinksUnsupported
	}
	r.Text = text
}

func (r *LinkReport) link(number int, state, line string) {
	speed := linkSpeed.FindStringSubmatch(state)
	if speed == nil && !strings.Contains(strings.ToLower(state), "inactive") {
		r.Puzzle = append(r.Puzzle, line)
		return
	}
	active := false
	if speed != nil {
		rate, _ := strconv.ParseFloat(speed[1], 64) // the form has a number
		active = rate > 0
	}
	r.Links = append(r.Links, gpu.NVLink{Link: number, Active: active})
}
