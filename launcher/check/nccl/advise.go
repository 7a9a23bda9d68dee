package nccl

import (
	"fmt"
	"slices"
	"strings"
)

// Host is what a host's links are, as far as NCCL's settings concern them.
type Host struct {
	Name    string
	Hosts   int     // of the job
	GPUs    int     // of the job, on this host
	NVLink  bool    // some two of them are linked by NVLink
	AllNV   bool    // every two of them are
	Sharing bool    // two ranks share a GPU
	Version Version // what was found there
	// Parts is how many of the job's devices there are MIG devices, OneGPU is set where two of
	// them are of one GPU, and Ranks is how many ranks the job has in all
	// that talk to each other.
	Parts  int
	OneGPU bool
	Ranks  int
	CUDA   string // highest version of the driver, such as "12.4"; "": not known
	Fabric bool   // the GPUs are of a fabric of NVSwitches, which may reach beyond the host
	// Container is set within a container.
	Container bool
	// Adapters are the InfiniBand and RoCE devices that are up. Interfaces are all network
	// interfaces; nil: not known.
	Adapters   []string
	Interfaces []Interface
}

// Interface is a network interface.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Virtual  string // why it leads to no other machine, such as "bridge"; "": it may
}

// Advise says what variables do on a host that their setter may not have meant. vars is the
// whole environment of a rank there; what does not concern NCCL is passed over.
func Advise(vars []Var, h Host) []Finding {
	a := advice{host: h, vars: map[string]Var{}}
	for _, v := range vars {
		a.vars[v.Name] = v
	}
	a.p2p()
	a.sharedMemory()
	a.infiniBand()
	a.sockets()
	a.interfaces()
	a.debug()
	a.devices()
	return a.findings
}

// advice collects findings of one host.
type advice struct {
	host     Host
	vars     map[string]Var
	findings []Finding
}

// number is what NCCL reads of a variable; ok is false where it is not set.
func (a *advice) number(name string) (n int64, ok bool) {
	v := a.vars[name]
	read := readNumber(v.Value, 0)
	return read.n, v.Value != "" && !read.huge
}

func (a *advice) add(name, code, fix, format string, args ...any) {
	v := a.vars[name]
	a.findings = append(a.findings, Finding{
		Code: code, Fix: fix, Host: a.host.Name, Source: v.Source,
		Message: fmt.Sprintf("%s=%s on %s: ", name, shown(v.Value), a.host.Name) + fmt.Sprintf(format, args...),
	})
}

// p2p: direct access between GPUs. The user guide lists P2P_DISABLE and P2P_LEVEL among
// the variables for debugging.
func (a *advice) p2p() {
	if a.host.GPUs < 2 {
		return
	}
	disabled, _ := a.number("NCCL_P2P_DISABLE")
	level := a.vars["NCCL_P2P_LEVEL"].Value
	switch {
	case disabled == 1 && a.host.NVLink:
		a.add("NCCL_P2P_DISABLE", CodeP2P, "take it out, or set NCCL_P2P_LEVEL=NVL to keep NVLink and leave PCIe aside",
			"NVLink is turned off too, and data between GPUs goes through host memory")
	case disabled == 1: // data goes through host memory, as is meant
	case (level == "LOC" || level == "0") && a.host.NVLink:
		a.add("NCCL_P2P_LEVEL", CodeP2P, "take it out, or write NVL to keep NVLink and leave PCIe aside", "NVLink is turned off too, and data between GPUs goes through host memory")
	case level == "NVL" && !a.host.NVLink:
		a.add("NCCL_P2P_LEVEL", CodeP2P, "take it out, or write PIX, PXB, PHB or SYS to allow P2P over PCIe",
			"no two of the job's GPUs there are linked by NVLink, so that direct access between GPUs is off altogether and data goes through host memory")
	}
}

// sharedMemory: GPUs without direct access meet there.
func (a *advice) sharedMemory() {
	disabled, _ := a.number("NCCL_SHM_DISABLE")
	if disabled == 1 && a.host.GPUs > 1 && !a.host.AllNV {
		a.add("NCCL_SHM_DISABLE", CodeP2P, "take it out; where /dev/shm is too small, make it larger instead",
			"GPUs that cannot reach each other directly then talk through the network, though they are in one host")
	}
}

// infiniBand: falling back to TCP is silent.
func (a *advice) infiniBand() {
	disabled, _ := a.number("NCCL_IB_DISABLE")
	net := a.vars["NCCL_NET"].Value
	switch up := strings.Join(a.host.Adapters, ", "); {
	case a.host.Hosts < 2:
	case len(a.host.Adapters) > 0 && disabled != 0:
		a.add("NCCL_IB_DISABLE", CodeNetwork, "take it out", "it leaves aside what is up there (%s): data between hosts goes through TCP, which is much slower", up)
	case len(a.host.Adapters) > 0 && strings.EqualFold(net, "Socket"):
		a.add("NCCL_NET", CodeNetwork, "take it out", "it leaves aside what is up there (%s): data between hosts goes through TCP, which is much slower", up)
	case a.host.Adapters != nil && len(a.host.Adapters) == 0 && strings.EqualFold(net, "IB"):
		a.add("NCCL_NET", CodeInterface, "take it out, or bring a device up (`ibstat` shows them)", "no InfiniBand or RoCE device is up there, and NCCL fails")
	}
}

// sockets: NCCL refuses more than 64 sockets of a connection.
func (a *advice) sockets() {
	threads, ok1 := a.number("NCCL_SOCKET_NTHREADS")
	each, ok2 := a.number("NCCL_NSOCKS_PERTHREAD")
	if ok1 && ok2 && threads > 0 && threads <= maxTCP && each <= maxTCP && threads*each > maxTCP {
		a.add("NCCL_SOCKET_NTHREADS", CodeRange, "lower one of them", "times NCCL_NSOCKS_PERTHREAD it is %d, and NCCL takes %d at most", threads*each, maxTCP)
	}
}

// debug: what is written only at a level that is not set.
func (a *advice) debug() {
	level := strings.ToUpper(a.vars["NCCL_DEBUG"].Value)
	if _, set := a.vars["NCCL_DEBUG_SUBSYS"]; set && level != "INFO" && level != "TRACE" {
		a.add("NCCL_DEBUG_SUBSYS", CodeNoEffect, "set NCCL_DEBUG=INFO with it", "it chooses among the lines of NCCL_DEBUG=INFO, which is not set")
	}
	if _, set := a.vars["NCCL_DEBUG_FILE"]; set && (level == "" || level == "VERSION") {
		a.add("NCCL_DEBUG_FILE", CodeNoEffect, "set NCCL_DEBUG=WARN or INFO with it", "nothing is written without NCCL_DEBUG")
	}
}

// names of devices, for messages.
func presentNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
