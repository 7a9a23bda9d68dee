package mps

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Most clients of one GPU: contexts are counted, so that a process may be several.
const (
	clientsBeforeVolta = 16 // compute capability 3.5 to 6
	clientsOfVolta     = 48 // and newer
	clientsOfCUDA131   = 60 // since CUDA 13.1
)

// MaxClients is how many contexts the server of one GPU serves, by the GPU's name and the highest CUDA version that
// its driver has, such as "12.4"; "" where that is not known.
func MaxClients(gpu, cuda string) int {
	switch {
	case IsOld(gpu):
		return clientsBeforeVolta
	case atLeast(cuda, 13, 1):
		return clientsOfCUDA131
	}
	return clientsOfVolta
}

var (
	// profile is one of MIG; its first number is how many compute slices a device has.
	profile = regexp.MustCompile(`^(?:([1-9])c\.)?([1-9])g\.`)
	// fourSlices are the products that MIG cuts into four slices; all others have seven (MIG user guide, Supported
	// GPUs).
	fourSlices = regexp.MustCompile(`(?i)\bA30\b|RTX PRO 6000`)
)

// MaxClientsOfPart is how many of the clients that a GPU takes a MIG device of it takes: in proportion to its compute
// slices (MIG user guide, on MPS), rounded up, as that does not say how. A profile that is not known takes all.
func MaxClientsOfPart(limit int, gpu, name string) int {
	found := profile.FindStringSubmatch(strings.ToLower(name))
	if found == nil {
		return limit
	}
	slices, err := strconv.Atoi(cmp.Or(found[1], found[2]))
	if err != nil {
		return limit
	}
	of := 7
	if fourSlices.MatchString(gpu) {
		of = 4
	}
	return min(limit, (limit*slices+of-1)/of)
}

// old are the names of products from before Volta (compute capability 3 to 6), as developer.nvidia.com/cuda-gpus and
// its page of legacy GPUs list them.
var old = regexp.MustCompile(`(?i)^(?:NVIDIA )?(?:` +
	`(?:Tesla )?(?:[CK][0-9]{2,4}|M(?:4|6|10|40|60)|P(?:4|6|40|100))(?:[a-z]{0,2}\b|$)` +
	`|Quadro (?:K|M|P|GP)[0-9]` +
	`|GeForce (?:GT|GTX) ?(?:[4-9][0-9]{2}|10[0-9]{2})` +
	`|(?:GeForce )?(?:GTX )?TITAN(?: X| Xp| Black| Z|$)(?:[^a-z]|$|p))`)

// IsOld reports whether a GPU is from before Volta, by its name. There MPS puts all clients into one address space,
// and knows no shares of threads or memory.
func IsOld(gpu string) bool { return old.MatchString(strings.TrimSpace(gpu)) }

// MIGByUUID is the first branch of drivers that names MIG devices by UUIDs of their own, which a daemon for one of
// them is started with.
const MIGByUUID = 470

// KnowsMIG reports whether a daemon can be started for one MIG device under a driver, such as "550.54.15"; one that
// is not known counts as new.
func KnowsMIG(driver string) bool { return driver == "" || atLeast(driver, MIGByUUID, 0) }

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}

// Percentage writes a share of threads as the daemon reads it.
func Percentage(share float64) string { return strconv.FormatFloat(share, 'f', -1, 64) }

// Amount writes an amount of memory as the daemon reads it: a whole number with G or M. bytes are whole MiB.
func Amount(bytes uint64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%dG", bytes>>30)
	}
	return fmt.Sprintf("%dM", bytes>>20)
}

// ParseAmount reads what the daemon tells of a limit.
func ParseAmount(text string) (bytes uint64, ok bool) {
	text = strings.TrimSpace(text)
	unit := uint64(1)
	switch {
	case strings.HasSuffix(text, "G"):
		unit = 1 << 30
	case strings.HasSuffix(text, "M"):
		unit = 1 << 20
	}
	n, err := strconv.ParseUint(strings.TrimRight(text, "GM"), 10, 32)
	return n * unit, err == nil
}

// Limit is the value of PinnedMemory: a limit on one device, by the daemon's number for it.
func Limit(number int, bytes uint64) string { return fmt.Sprintf("%d=%s", number, Amount(bytes)) }
