package facts

import (
	"github.com/muster-dev/muster/plugins"
)

// Devices are the GPUs of a host, with what its kernel says of where they sit.
type Devices struct {
	*plugins.GPUs
	Near    []Near  `json:"near"`    // by position in GPUs
	Islands [][]int `json:"islands"` // positions of GPUs that reach each other by NVLink
	// None says why nothing is known of GPUs here; "" where it is known, also that there
	// are none.
	None string `json:"none,omitempty"`
}

// Near is what is close to a GPU.
type Near struct {
	NUMA *int  `json:"numa"` // NUMA node of its PCI slot; nil where the machine has none or does not tell
	CPUs []int `json:"cpus"` // of that node that processes of this user may run on
}
