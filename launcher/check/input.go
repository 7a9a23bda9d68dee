package check

import (
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
)

// Input is what is known before the start.
type Input struct {
	Job   *config.Job
	Plan  *plan.Plan
	Hosts []Host // in the plan's order
	// MasterAddr is the address of the head host that ranks are to meet at; "" where none
	// is chosen: then the first one that every host reaches counts.
	MasterAddr string
	// LimitsRaised is set where workers get their soft limits raised to the hard ones.
	LimitsRaised bool
}

// Host is what is known of one host.
type Host struct {
	Name  string
	Facts facts.Host
	// Software is what was found once setup was done; the zero value leaves it to Facts.
	Software facts.Software
	// ClockOffset is how far its clock is ahead, in seconds, of one that is the same for
	// all hosts; nil: not measured. ClockError is how far off that may be.
	ClockOffset *float64
	ClockError  float64
	// Reach are the addresses that it has tried, in the order of preference.
	Reach []Reach
	// More is what facts do not tell so far.
	More More
}

// Reach is what became of a host's try to reach an address of another.
type Reach struct {
	Of    int    // the host whose address it is; 0: the head host
	Addr  string // IP, with or without a port
	From  string // own IP that the connection left from
	Error string // why not; empty: reached
}

// More are facts that are not in facts.Host so far. The zero value is not known.
type More struct {
	NVSwitches           int    // on the PCI bus: NVIDIA's bridges of class 0680
	FabricManager        string // systemd's word for nvidia-fabricmanager: "active", "inactive", "failed", ...
	FabricManagerVersion string
	KernelModule         string // version of the NVIDIA module that is loaded
	PythonVersion        string // of Software.Python, such as "3.11.7"
	ProgramMissing       string // why the command's program cannot be found; "" where it can
	Verbs                *bool  // /dev/infiniband/uverbs* are there
	PeerMemory           *bool  // nvidia_peermem is loaded, or the kernel and driver have dma-buf
	// OwnPIDs is set where process numbers are those of a container.
	OwnPIDs bool
	// Networks are the addresses of interfaces with their prefixes, such as "10.0.0.5/24".
	Networks map[string][]string
	// Spaces are the file systems of the logs and the work folder, where these are not the
	// home's.
	Spaces []Space
}

// Space is a file system that a run writes to.
type Space struct {
	facts.Space
	Use        string // "logs", "work folder"
	Inodes     uint64 // 0: not known, or without number
	InodesFree uint64
	ReadOnly   bool
}

// runsWith is what workers are going to run with.
func (h Host) runsWith() facts.Software {
	if h.Software != (facts.Software{}) || h.Facts.Software == nil {
		return h.Software
	}
	return *h.Facts.Software
}
