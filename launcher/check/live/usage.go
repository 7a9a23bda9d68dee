package live

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Sight is what one host saw at a moment: which processes hold which devices.
type Sight struct {
	Host int     // in the plan
	At   float64 // seconds since the attempt's workers were started
	gpu.Usage
}

func describeHolder(h gpu.Holder) string { return rule.Describe(h.Command, h.PID, h.User, h.Bytes) }

// isMPS reports whether it is the server of MPS, which holds a device for its clients.
func isMPS(h gpu.Holder) bool { return h.Rank == gpu.Nobody && rule.IsMPSServer(h.Command) }

// contextSize is less than any CUDA context takes of a GPU, in bytes.
const contextSize = 32 << 20

// isTrace reports whether a process shows on a device without a context of its own: NCCL's
// peer-to-peer mappings make each rank show on the GPUs of the others, with next to no
// memory (pytorch issue 64130).
func isTrace(h gpu.Holder) bool { return h.Bytes != nil && *h.Bytes < contextSize }

// held is a holder with the plan's device; nil where it is of none. beside names a MIG device
// that the plan does not have.
type held struct {
	gpu.Holder
	device *watchedDevice
	beside string
}

// total is what processes hold together, in words with "of its memory"; "" where that is
// not told.
func total(all []held) string {
	sum := uint64(0)
	for _, h := range all {
		sum += gpu.OrZero(h.Bytes)
	}
	if sum == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", text.Bytes(sum))
}
