package check

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Sight is what one host saw at a moment: which processes hold which devices.
type Sight struct {
	Host    int     // in the plan
	At      float64 // seconds since the attempt's workers were started
	Devices []Held
	// MemoryUsed is what is in use of each device, in bytes, by UUID.
	MemoryUsed map[string]uint64
	// Blind says why processes that are of no rank may be of one all the same, such as
	// numbers of another pid namespace; "" where all could be told apart.
	Blind string
	// Error says why nothing was seen.
	Error string
	// MPS is what the daemons of MPS that serve the run tell.
	MPS []MPS
}

// MPS is what a daemon of MPS tells.
type MPS struct {
	Device  string       // UUID
	Clients map[int]bool // pids
	Error   string       // why it tells nothing
}

// Nobodys is the rank of a process that is of none.
const Nobodys = -1

// Held is a device that a process holds memory of.
type Held struct {
	UUID    string // of the MIG instance, where that is told, else of the GPU
	PCI     string // of the GPU; "" where that is not told
	PID     int
	Rank    int  // Nobodys: somebody else's
	Child   bool // of the rank, but not its leader
	Kind    string
	Bytes   *uint64
	User    string
	Command string
}

func (h Held) words() string { return holderWords(h.Command, h.PID, h.User, h.Bytes) }

// isMPS reports whether it is the server of MPS, which holds a device for its clients.
func (h Held) isMPS() bool { return h.Rank == Nobodys && isMPSServer(h.Command) }

// contextSize is less than any CUDA context takes of a GPU, in bytes.
const contextSize = 32 << 20

// isTrace reports whether a process shows on a device without a context of its own: NCCL's
// peer-to-peer mappings make each rank show on the GPUs of the others, with next to no
// memory (pytorch issue 64130).
func (h Held) isTrace() bool { return h.Bytes != nil && *h.Bytes < contextSize }

// isPart reports whether it is told of which MIG device it is.
func (h Held) isPart() bool { return strings.HasPrefix(h.UUID, "MIG-") }

// held is a Held with the plan's device; nil where it is of none. beside names a MIG device
// that the plan does not have.
type held struct {
	Held
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
	return fmt.Sprintf(" (%s)", bytesWord(sum))
}
