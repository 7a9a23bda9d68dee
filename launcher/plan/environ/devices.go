package environ

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/place"
)

// devices are the variables that show a rank its devices.
func (b *builder) devices(r plan.Rank) []plan.Var {
	h := &b.Hosts[b.host]
	switch {
	case h.Hidden:
		return []plan.Var{{Name: h.Variable, Value: "", Source: `devices = "none"`}}
	case r.Device == nil:
		return nil
	}
	names, why := b.deviceNames()
	if why != "" {
		why = "; by number, since " + why
	}
	shown := shownTo(h, r, names)
	if b.Config.MPS != nil && names == "index" { // a client counts in the daemon's list
		number, _ := place.DaemonNumber(b.Config.MPS, &b.Facts[b.host], *r.Device)
		shown, why = []string{strconv.Itoa(number)}, why+"; the number is its MPS daemon's for it"
	}
	source := fmt.Sprintf("the devices of the ranks on %s, in their order: number %d is %s", h.Name, r.Local, r.Device)
	if h.Visibility == "rank" {
		source = fmt.Sprintf("%s of %s alone: %s", r.Device, h.Name, h.VisibleWhy)
	}
	vars := []plan.Var{
		{Name: h.Variable, Value: strings.Join(shown, ","), Source: source + why},
		{Name: "MUSTER_DEVICE", Value: r.Device.UUID, Source: fmt.Sprintf("%s, PCI %s", r.Device, r.Device.PCI)},
	}
	if h.Variable == place.CUDAVisible {
		vars = append(vars, variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "so that numbers are those of nvidia-smi"))
	}
	return vars
}

// shownTo are the names of the devices that a rank sees, in order. With "host" they are one for each local rank, none
// twice.
func shownTo(h *plan.Host, r plan.Rank, names string) []string {
	devices := h.Devices
	if h.Visibility == "rank" {
		devices = []plan.Device{*r.Device}
	}
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = d.UUID
		if names == "index" {
			list[i] = strconv.Itoa(d.Index)
		}
	}
	return list
}

// firstTorchWithUUIDs is the first version of PyTorch that counts devices that are named by UUID; 1.13 counts none
// (pytorch issue 90543).
const firstTorchWithUUIDs = 2

// DeviceNames is how devices of a host are named to its ranks, by "uuid" or "index", as far as that is known before
// setup was run, and why it is not as the job file has it.
func DeviceNames(p *plan.Plan, host int) (names, why string) {
	return (&builder{Plan: p, host: host, meeting: &plan.Meeting{}}).deviceNames()
}

// deviceNames: by UUID, unless the torch there is too old for that and the job file leaves it open.
func (b *builder) deviceNames() (names, why string) {
	h := &b.Hosts[b.host]
	torch := softwareOf(b.Plan, b.host, b.meeting).Torch
	release, _, _ := strings.Cut(torch, ".")
	major, err := strconv.Atoi(release)
	old := err == nil && major < firstTorchWithUUIDs
	if h.Names == "uuid" && old && b.Config.Placement.DeviceNames == "" &&
		!slices.ContainsFunc(h.Devices, plan.Device.IsInstance) {
		return "index", fmt.Sprintf("torch %s knows no UUIDs", torch)
	}
	return h.Names, ""
}

// mpsShares are a rank's shares of its GPU.
func (b *builder) mpsShares(r plan.Rank) []plan.Var {
	m := b.Config.MPS
	if m == nil || r.Device == nil {
		return nil
	}
	var vars []plan.Var
	if threads := b.MPSThreads(r.Rank); threads > 0 {
		vars = append(vars, variable(mps.ActiveThreads, mps.Percentage(threads), m.ThreadsAt))
	}
	if memory := b.MPSMemory(r.Rank); memory > 0 {
		number, _ := place.DaemonNumber(m, &b.Facts[b.host], *r.Device)
		vars = append(vars, variable(mps.PinnedMemory, mps.Limit(number, memory),
			fmt.Sprintf("%s; %d is what the MPS daemon calls %s", m.MemoryAt, number, r.Device)))
	}
	return vars
}

// mpsFolders say where a rank's daemon is.
func (b *builder) mpsFolders(r plan.Rank) []plan.Var {
	switch {
	case b.Config.MPS == nil || r.Device == nil:
		return nil
	case b.Config.MPS.Existing:
		return []plan.Var{variable(mps.PipeDirectory, b.ExistingPipe(b.host),
			"the MPS daemon that is there already (daemon = \"existing\")")}
	}
	folders := plan.MPSFolders{}
	if b.host < len(b.meeting.MPS) {
		folders = b.meeting.MPS[b.host][r.Device.UUID]
	}
	why := fmt.Sprintf("the run's own MPS daemon for %s of %s", r.Device, b.Hosts[b.host].Name)
	return []plan.Var{variable(mps.PipeDirectory, folders.Pipe, why), variable(mps.LogDirectory, folders.Log, why)}
}

// ompi marks the values by which JAX takes itself for started by mpirun.
const ompi = "jax.distributed.initialize() reads it"

// jax is what jax.distributed.initialize() reads when it is called without arguments (jax/_src/distributed.py and
// jax/_src/clusters of JAX 0.10). The coordinator's address and the local devices have variables of JAX's own. The
// number of processes and the rank have none: they come from the launcher that JAX finds, the first of which is Open
// MPI's, known by OMPI_MCA_orte_hnp_uri alone. That one's value, the address of mpirun, JAX ignores where the
// coordinator's is given.
func (b *builder) jax(r plan.Rank) []plan.Var {
	if b.Config.Program != config.ProgramJAX {
		return nil
	}
	local, at := b.localRank(r).Value, ""
	if addr, err := netip.ParseAddr(b.meeting.MasterAddr); err == nil {
		at = netip.AddrPortFrom(addr, uint16(b.meeting.MasterPort)).String()
	}
	vars := []plan.Var{
		variable("JAX_COORDINATOR_ADDRESS", at, "MASTER_ADDR and MASTER_PORT, where rank 0 starts JAX's coordinator"),
		variable("OMPI_MCA_orte_hnp_uri", "muster", "jax.distributed.initialize() looks at the next three where it is set"),
		variable("OMPI_COMM_WORLD_SIZE", b.WorldSize, ompi),
		variable("OMPI_COMM_WORLD_RANK", r.Rank, ompi),
		variable("OMPI_COMM_WORLD_LOCAL_RANK", local, ompi),
	}
	if r.Device != nil {
		vars = append(vars, variable("JAX_LOCAL_DEVICE_IDS", local, "the rank's device among those that it sees"))
	}
	return vars
}
