package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plural"
)

// MPSFolders are where a daemon of MPS has its sockets, and its logs.
type MPSFolders struct{ Pipe, Log string }

// MPSGPU is a device whose ranks are clients of one daemon of MPS.
type MPSGPU struct {
	Device Device
	Ranks  []int
	// Threads and Memory are the most that one of the ranks may have: what the daemon is told,
	// as a client can only lower it. 0: no limit.
	Threads float64
	Memory  uint64
}

// MPS are the devices of a host that its ranks share by MPS; none without an mps block.
func (p *Plan) MPS(host int) []MPSGPU {
	m := p.job.MPS
	if m == nil {
		return nil
	}
	var all []MPSGPU
	h := p.Hosts[host]
	for _, r := range p.Ranks[h.FirstRank : h.FirstRank+h.Ranks] {
		if r.Device == nil {
			continue
		}
		if n := len(all); n == 0 || !all[n-1].Device.same(*r.Device) {
			all = append(all, MPSGPU{Device: *r.Device})
		}
		g := &all[len(all)-1]
		place := len(g.Ranks)
		g.Ranks = append(g.Ranks, r.Rank)
		g.Threads, g.Memory = max(g.Threads, m.ThreadsOf(place)), max(g.Memory, m.MemoryOf(place))
	}
	return all
}

// MPSBlock is the job's; nil without one.
func (p *Plan) MPSBlock() *config.MPS { return p.job.MPS }

// MPSMemory is how much device memory a rank may take under MPS; 0: no limit.
func (p *Plan) MPSMemory(rank int) uint64 {
	if p.job.MPS == nil {
		return 0
	}
	return p.job.MPS.MemoryOf(p.placeOnGPU(p.Ranks[rank]))
}

// MPSThreads is how many per cent of a GPU's threads a rank may use under MPS; 0: no limit.
func (p *Plan) MPSThreads(rank int) float64 {
	if p.job.MPS == nil {
		return 0
	}
	return p.job.MPS.ThreadsOf(p.placeOnGPU(p.Ranks[rank]))
}

// placeOnGPU is a rank's number among those of its device.
func (p *Plan) placeOnGPU(r Rank) int {
	place := 0
	for _, other := range p.Ranks[p.Hosts[r.Host].FirstRank:r.Rank] {
		if r.Device != nil && other.Device != nil && other.Device.same(*r.Device) {
			place++
		}
	}
	return place
}

// ExistingPipe is where the daemon is that a host's ranks are to be clients of, where it is
// one that is there already.
func (p *Plan) ExistingPipe(host int) string {
	if p.job.MPS == nil || !p.job.MPS.Existing {
		return ""
	}
	return existingPipe(p.job.MPS, p.facts[host])
}

func existingPipe(m *config.MPS, f facts.Host) string {
	return cmp.Or(m.PipeDirectory, f.Environ[mps.PipeDirectory], mps.DefaultPipeDirectory)
}

// mpsShares are a rank's shares of its GPU.
func (p *Plan) mpsShares(r Rank) []Var {
	m := p.job.MPS
	if m == nil || r.Device == nil {
		return nil
	}
	place := p.placeOnGPU(r)
	var vars []Var
	if threads := m.ThreadsOf(place); threads > 0 {
		vars = append(vars, Var{Name: mps.ActiveThreads, Value: mps.Percentage(threads), Source: m.ThreadsAt})
	}
	if memory := m.MemoryOf(place); memory > 0 {
		number, _ := p.daemonNumber(r.Host, *r.Device)
		vars = append(vars, Var{Name: mps.PinnedMemory, Value: mps.Limit(number, memory),
			Source: fmt.Sprintf("%s; %d is what the MPS daemon calls %s", m.MemoryAt, number, r.Device)})
	}
	return vars
}

// mpsFolders tell a rank where its daemon is.
func (p *Plan) mpsFolders(r Rank, m Meeting) []Var {
	switch {
	case p.job.MPS == nil || r.Device == nil:
		return nil
	case p.job.MPS.Existing:
		return []Var{{Name: mps.PipeDirectory, Value: p.ExistingPipe(r.Host), Source: "the MPS daemon that is there already (daemon = \"existing\")"}}
	}
	folders := MPSFolders{}
	if r.Host < len(m.MPS) {
		folders = m.MPS[r.Host][r.Device.UUID]
	}
	why := fmt.Sprintf("the run's own MPS daemon for %s of %s", r.Device, p.Hosts[r.Host].Name)
	return []Var{{Name: mps.PipeDirectory, Value: folders.Pipe, Source: why}, {Name: mps.LogDirectory, Value: folders.Log, Source: why}}
}

// daemonNumber is the number by which a daemon of MPS knows a device. One of the run's own
// has that device only; one that was there counts those that it was started with.
func (p *Plan) daemonNumber(host int, d Device) (number int, known bool) {
	return numberAt(p.job.MPS, p.facts[host], d)
}

func numberAt(m *config.MPS, f facts.Host, d Device) (number int, known bool) {
	if !m.Existing {
		return 0, true
	}
	if f.MPS == nil || f.Devices == nil {
		return 0, false
	}
	pipe := existingPipe(m, f)
	for _, daemon := range f.MPS.Daemons {
		if daemon.Told && daemon.Pipe == pipe {
			at := slices.IndexFunc(devicesOfDaemon(f.Devices, daemon), d.same)
			return max(0, at), at >= 0
		}
	}
	return 0, false
}

// devicesOfDaemon are the devices that a daemon shows its clients, in its order.
func devicesOfDaemon(d *facts.Devices, daemon facts.MPSDaemon) []Device {
	if daemon.Devices == nil {
		return devicesOf(d)
	}
	var all []Device
	for token := range strings.SplitSeq(*daemon.Devices, ",") {
		device, err := find(d, strings.TrimSpace(token))
		if err != nil {
			break // as CUDA does
		}
		all = append(all, device)
	}
	return all
}

// checkMPS refuses what MPS cannot do on a host.
func (c *chooser) checkMPS(s share) {
	m := c.job.MPS
	if m == nil || len(s.devices) == 0 {
		return
	}
	if c.variable() != cudaVisible {
		c.refuse("mps_not_cuda", "%s: mps is CUDA's, and the devices there are not (%s)", c.host.Name, c.devices.Visibility.Variable)
		return
	}
	c.checkClients(m, s)
	for _, d := range s.devices {
		c.checkMemory(m, d)
		if d.IsInstance() && c.devices.Inventory.Driver != nil && !mps.KnowsMIG(*c.devices.Inventory.Driver) {
			c.refuse("mps_mig", "%s: %s: drivers before %d give a MIG device no name that an MPS daemon can be started for (there is %s)", c.host.Name, d, mps.MIGByUUID, *c.devices.Inventory.Driver)
		}
	}
	if c.facts.MPS != nil && c.facts.MPS.Program == "" {
		c.refuse("no_mps", "%s: there is no %s, neither in PATH nor where drivers put it: install the driver's MPS (packages call it nvidia-compute-utils or nvidia-driver-cuda), or leave the mps block out", c.host.Name, mps.ControlProgram)
	}
	if m.Existing {
		c.checkExisting(m, s)
		return
	}
	c.checkOthers(s)
}

// checkClients counts ranks against what a server takes. A rank that makes several contexts
// counts several times, which nobody can know before.
func (c *chooser) checkClients(m *config.MPS, s share) {
	for _, d := range s.devices {
		name, cuda := c.card(d).Name, ""
		if c.devices.Inventory.CUDA != nil {
			cuda = *c.devices.Inventory.CUDA
		}
		if most := mps.MostClientsOfPart(mps.MostClients(name, cuda), name, d.Profile); m.RanksPerGPU > most {
			words := "CUDA " + cuda
			if cuda == "" {
				words = "its driver's CUDA, which is not known,"
			}
			c.refuse("mps_clients", "%s: ranks_per_gpu = %d: MPS takes %d clients on %s (%s, with %s); write at most %d, or use more GPUs", c.host.Name, m.RanksPerGPU, most, d, name, words, most)
			return
		}
		if mps.IsOld(name) {
			if len(m.Threads)+len(m.Memory) > 0 {
				c.refuse("mps_old", "%s: %s (%s) is from before Volta, where MPS knows no shares of threads or memory: leave active_thread_percentage and pinned_memory_limit out", c.host.Name, d, name)
				return
			}
			c.warn("mps_old", "%s: %s (%s) is from before Volta: MPS puts all clients into one address space there, so that one can damage another's memory", c.host.Name, d, name)
		}
	}
}

// checkMemory compares the limits of a GPU's ranks with its memory.
func (c *chooser) checkMemory(m *config.MPS, d Device) {
	total, _, _ := memoryOf(c.card(d), d)
	if total == nil || len(m.Memory) == 0 {
		return
	}
	together := uint64(0)
	for place := range m.RanksPerGPU {
		if limit := m.MemoryOf(place); limit > *total {
			c.refuse("mps_memory", "%s: %s: pinned_memory_limit %s is more than %s has, %s", c.host.Name, m.MemoryAt, bytesWord(limit), d, bytesWord(*total))
			return
		}
		together += m.MemoryOf(place)
	}
	if together > *total {
		c.warn("mps_memory", "%s: the pinned_memory_limits of %s make %s, and %s has %s: a rank may find less than its limit", c.host.Name, plural.Of(m.RanksPerGPU, "rank"), bytesWord(together), d, bytesWord(*total))
	}
}

// checkOthers looks for daemons of others that cover a device.
func (c *chooser) checkOthers(s share) {
	for _, d := range s.devices {
		if c.facts.MPS == nil {
			continue
		}
		for _, daemon := range c.facts.MPS.Daemons {
			c.checkOther(daemon, d)
		}
	}
	if c.facts.MPS != nil && c.facts.MPS.Left != "" {
		c.note("mps_left", "%s: an MPS daemon that is no more has left its folder %s; it is left alone, and in nobody's way", c.host.Name, c.facts.MPS.Left)
	}
}

func (c *chooser) checkOther(daemon facts.MPSDaemon, d Device) {
	who := fmt.Sprintf("an MPS daemon of %s (pid %d", daemon.User, daemon.PID)
	if daemon.Pipe != "" {
		who += ", in " + daemon.Pipe
	}
	who += ")"
	if daemon.Run != "" {
		who = fmt.Sprintf("the MPS daemon of muster's run %s (pid %d)", daemon.Run, daemon.PID)
	}
	const fix = "have its ranks be clients of that one (daemon = \"existing\"), choose other GPUs, or have it ended (echo quit | nvidia-cuda-mps-control, by its user)"
	switch {
	case daemon.Told && !slices.ContainsFunc(devicesOfDaemon(c.devices, daemon), d.same):
	case daemon.Told && daemon.Lost:
		c.refuse("mps_taken", "%s: %s covers %s, and its folder has been removed: nobody can reach it any more; end it with kill %d", c.host.Name, who, d, daemon.PID)
	case daemon.Told:
		c.refuse("mps_taken", "%s: %s covers %s already, and two servers on one GPU only take turns: %s", c.host.Name, who, d, fix)
	default:
		if !c.warned("mps_unknown") {
			c.warn("mps_unknown", "%s: %s is there, and which GPUs it covers only its user can see: if it serves one of this run's, the two take turns", c.host.Name, who)
		}
	}
}

func (c *chooser) warned(code string) bool {
	return slices.ContainsFunc(c.warnings, func(p Problem) bool { return p.Code == code })
}

// checkExisting sees whether the daemon that is to be there is.
func (c *chooser) checkExisting(m *config.MPS, s share) {
	pipe := existingPipe(m, c.facts)
	if c.facts.MPS == nil {
		return
	}
	unknown := false
	for _, daemon := range c.facts.MPS.Daemons {
		unknown = unknown || !daemon.Told
		if !daemon.Told || daemon.Pipe != pipe {
			continue
		}
		c.checkServes(daemon, pipe, s)
		return
	}
	switch {
	case !unknown && c.facts.MPS.Left != "":
		c.refuse("no_daemon", "%s: daemon = \"existing\": no MPS daemon runs there; %s are the sockets of one that has ended: start it, or leave daemon out", c.host.Name, c.facts.MPS.Left)
	case !unknown:
		c.refuse("no_daemon", "%s: daemon = \"existing\": no MPS daemon runs there in %s: start it (nvidia-cuda-mps-control -d), say where it is (pipe_directory), or leave daemon out", c.host.Name, pipe)
	case len(m.Memory) > 0:
		c.refuse("mps_number", "%s: pinned_memory_limit goes by the number that a daemon gives a device, and that of the daemon there only its user can see: leave it out, or leave daemon out", c.host.Name)
	}
}

func (c *chooser) checkServes(daemon facts.MPSDaemon, pipe string, s share) {
	if daemon.Lost {
		c.refuse("no_daemon", "%s: the MPS daemon there (pid %d) has lost its folder %s: programs find it no more and run without MPS; end it with kill %d and start it again", c.host.Name, daemon.PID, pipe, daemon.PID)
		return
	}
	devices := devicesOfDaemon(c.devices, daemon)
	for _, d := range s.devices {
		if !slices.ContainsFunc(devices, d.same) {
			c.refuse("no_daemon", "%s: the MPS daemon in %s (pid %d) does not serve %s: choose the devices that it serves (ranks { devices = [...] })", c.host.Name, pipe, daemon.PID, d)
		}
	}
}

// mpsProblems tells what MPS does not do for the job's ranks together, and of daemons that
// ranks become clients of though nobody has asked for that.
func (p *Plan) mpsProblems() []Problem {
	if p.job.MPS == nil {
		return p.unaskedMPS()
	}
	var all []Problem
	say := func(code, host, format string, args ...any) {
		all = append(all, Problem{Code: code, Host: host, Message: fmt.Sprintf(format, args...)})
	}
	for i, h := range p.Hosts {
		for _, limit := range p.limitNames() {
			if value, found := p.facts[i].Environ[limit.variable]; found && !limit.set {
				say("mps_found", h.Name, "%s: %s=%s is set there, not by the job file, and limits ranks; the mps block has %s for that", h.Name, limit.variable, value, limit.name)
			}
		}
		if p.Backend != "nccl" || len(h.Devices) == 0 {
			continue
		}
		if verdict, _, _ := p.OnDevices(i, Meeting{}); verdict == nccl.Unknown || verdict == nccl.Refuses {
			continue // which is said with what NCCL makes of its other settings
		}
		if len(h.Devices) > 1 && !p.job.MPS.Existing {
			say("mps_daemons", h.Name, "%s: its %s have an MPS daemon each, and clients of different ones do not reach each other's memory directly: NCCL between them is slow, if it works. For collectives over GPUs leave the mps block out, and give each rank a GPU", h.Name, counted(h.Devices))
		}
	}
	for _, g := range p.Groups {
		if a, b, shared := p.sharedIn(g); shared {
			host := p.Hosts[p.Ranks[a].Host].Name
			say("mps_group", host, "%s: the %s group of ranks %d-%d has ranks %d and %d on one GPU: a group is split over GPUs to have more of them, and NCCL refuses two ranks on one", host, g.Name, g.First, g.First+g.Size-1, a, b)
			break
		}
	}
	return all
}

// limitName is a limit of the mps block.
type limitName struct {
	variable, name string
	set            bool
}

func (p *Plan) limitNames() []limitName {
	return []limitName{
		{mps.ActiveThreads, "active_thread_percentage", len(p.job.MPS.Threads) > 0},
		{mps.PinnedMemory, "pinned_memory_limit", len(p.job.MPS.Memory) > 0},
	}
}

// sharedIn finds two ranks of a group on one device.
func (p *Plan) sharedIn(g Group) (a, b int, shared bool) {
	for b := g.First; b < g.First+g.Size; b++ {
		for a := g.First; a < b; a++ {
			one, other := p.Ranks[a], p.Ranks[b]
			if one.Host == other.Host && one.Device != nil && other.Device != nil && one.Device.same(*other.Device) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// unaskedMPS tells of a daemon where CUDA looks for one by itself: every rank becomes its
// client. Where none answers there, ranks run without MPS, though the host's variables speak
// of it.
func (p *Plan) unaskedMPS() []Problem {
	var all []Problem
	for i, h := range p.Hosts {
		f := p.facts[i]
		if f.MPS == nil || len(h.Devices) == 0 {
			continue
		}
		asked, set := f.Environ[mps.PipeDirectory]
		pipe := cmp.Or(asked, mps.DefaultPipeDirectory)
		at := slices.IndexFunc(f.MPS.Daemons, func(d facts.MPSDaemon) bool { return d.Told && d.Pipe == pipe && !d.Lost })
		switch {
		case at >= 0:
			d := f.MPS.Daemons[at]
			all = append(all, Problem{Code: "mps_found", Host: h.Name, Message: fmt.Sprintf(
				"%s: ranks will be clients of the MPS daemon of %s in %s (pid %d), where CUDA looks by itself: a fault of one client ends all of them; say that it is meant with mps { daemon = \"existing\" }, or end it", h.Name, d.User, pipe, d.PID)})
		case set && !slices.ContainsFunc(f.MPS.Daemons, func(d facts.MPSDaemon) bool { return !d.Told }):
			all = append(all, Problem{Code: "mps_found", Host: h.Name, Message: fmt.Sprintf(
				"%s: %s=%s is set there, and no MPS daemon runs there: ranks run without MPS, and nothing will say so. Write mps { ranks_per_gpu = N } to have one, or unset it there", h.Name, mps.PipeDirectory, asked)})
		}
	}
	return all
}
