package nccl

import (
	"cmp"
	"fmt"
	"strings"
)

// Sizes of buffers in bytes. The default of NCCL_BUFFSIZE is 4 MiB in the user guide and in the source of every release
// from 2.3.5 to 2.30.7 (src/init.cc); only on ARM it was 1 MiB from 2.6 to 2.18. The 16 MiB of many pages are wrong.
const (
	DefaultBuffer = 4 << 20

	llBuffer    = 512 * 8 * 8 * 16  // threads x lines x steps x bytes of a line
	ll128Buffer = 640 * 120 * 8 * 8 // threads x elements x steps x bytes of an element
)

// What is assumed of a communicator where nothing is set: NCCL decides by the machine's links, of which 24 channels are
// usual with NVLink; a ring has one peer per channel, a tree on top of it up to three more.
const (
	usualChannels = 24
	fewestPeers   = 1
	maxPeers      = 4
)

// BufferCost is the GPU memory in bytes that one rank's end of a communicator takes. Each channel has a set of buffers
// per peer that it receives from: one for each of the protocols LL, LL128 and Simple, and bufferSize (NCCL_BUFFSIZE) is
// that of Simple alone. Since NCCL 2.22 a connection is made, and its memory taken, when it is first used. The buffers
// of NVLS come on top (src/init.cc, src/transport.cc, src/include/device.h).
func BufferCost(bufferSize uint64, channels, peers int) uint64 {
	return uint64(channels) * uint64(peers) * (llBuffer + ll128Buffer + bufferSize)
}

// Buffers are what a communicator's buffers take of a GPU at least and at most, in bytes: with a ring only, and with a
// tree on top of it. size is NCCL_BUFFSIZE and maxChannels the limit that the user has set; 0 where nothing is set.
func Buffers(size uint64, maxChannels int) (low, high uint64) {
	size, maxChannels = cmp.Or(size, DefaultBuffer), cmp.Or(maxChannels, usualChannels)
	return BufferCost(size, maxChannels, fewestPeers), BufferCost(size, maxChannels, maxPeers)
}

// BufferNote says what a size of buffers costs a job: per communicator, and for those that the job probably has.
// maxChannels is what the user has set as the limit, 0 where nothing is.
func BufferNote(size uint64, maxChannels int, communicators []string) string {
	assumed := "at most"
	if maxChannels == 0 {
		assumed = "with about"
	}
	cost := func(size uint64, communicators int) string {
		low, high := Buffers(size, maxChannels)
		gib := float64(communicators) / (1 << 30)
		return fmt.Sprintf("%.1f GiB to %.1f GiB", gib*float64(low), gib*float64(high))
	}
	unit, each := "MiB", uint64(1<<20)
	if size%each != 0 {
		unit, each = "KiB", 1<<10
	}
	note := fmt.Sprintf("buffers of %d %s: %s %d channels, each communicator takes %s of every GPU outside of PyTorch's pool",
		size/each, unit, assumed, cmp.Or(maxChannels, usualChannels), cost(size, 1))
	if size != DefaultBuffer {
		note += fmt.Sprintf(", with the default of 4 MiB %s", cost(DefaultBuffer, 1))
	}
	if n := len(communicators); n > 1 {
		note += fmt.Sprintf("; this job probably has %d (%s), which take %s", n, strings.Join(communicators, ", "), cost(size, n))
	}
	switch size {
	case DefaultBuffer:
		note += "; this is the default of NCCL"
	case 16 << 20:
		note += "; 16 MiB is not the default of NCCL, though many pages say so"
	}
	return note
}
