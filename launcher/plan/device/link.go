package device

import (
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// LinkBetween is the way between two devices of a host. MIG devices are taken to reach each other through the host's
// memory only, as do those of different GPUs, and those of one GPU before R570.
func LinkBetween(links [][]gpu.Link, a, b Device) gpu.Link {
	link := LinkAt(links, a.Card, b.Card)
	if (a.IsInstance() || b.IsInstance()) && Distance(link) < Distance("PHB") {
		return "PHB"
	}
	return link
}

// LinkAt is the way between two GPUs; unknown where there is no table of them.
func LinkAt(links [][]gpu.Link, a, b int) gpu.Link {
	if a >= len(links) || b >= len(links[a]) {
		return ""
	}
	return links[a][b]
}

// links between GPUs, fast ones first.
var links = []gpu.Link{"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", ""}

// Distance is the place of a link among all kinds, from fast to slow.
func Distance(l gpu.Link) int {
	if l.NVLinks() > 0 {
		l = "NV"
	}
	if at := slices.Index(links, l); at >= 0 {
		return at
	}
	return len(links) - 1
}
