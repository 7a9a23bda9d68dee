package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Input is what is known.
type Input struct {
	// Job and Plan are nil where hosts alone are looked at.
	Job  *config.Job
	Plan *plan.Plan
	// Meeting is what is known of the start: MasterAddr where one is chosen (else the first one that every host reaches
	// counts), and what was found once setup was done.
	Meeting plan.Meeting
	Hosts   []Host // in the plan's order
	// LimitsRaised is set where workers get their soft limits of memory that is locked and of open files raised to the
	// hard ones: then the hard ones count.
	LimitsRaised bool
}

// Host is what is known of one host.
type Host struct {
	Name  string
	Facts facts.Host
	// Software is what was found once setup was done; the zero value leaves it to Facts.
	Software facts.Software
	// ClockOffset is how far its clock is ahead, in seconds, of one that is the same for all hosts; nil: not measured.
	// ClockError is how far off that may be.
	ClockOffset *float64
	ClockError  float64
	// Visits are what came of its checks of the way to other hosts.
	Visits []Visit
	// Reach are the addresses that it has tried, in the order of preference.
	Reach []Reach

	// In, At, Part and GPUs are set by Run: all that is known, its place there, its part of the plan and its GPUs.
	In   *Input
	At   int
	Part plan.Host
	GPUs []*GPU
}

// Reach is what became of a host's try to reach an address of another.
type Reach struct {
	Of    int    // the host whose address it is; 0: the head host
	Addr  string // IP, with or without a port
	From  string // own IP that the connection left from
	Error string // why not; empty: reached
}

// Visit is what became of a host's check of the way to another, at the address that ranks use.
type Visit struct {
	Of    int
	Addr  string // IP
	From  string // own IP that it left from; "" where it was not let in
	Error string // why not; empty: reached
	// Stuck is set where it was let in and large packets did not arrive; Passes is the largest packet of a few sizes
	// that did, in bytes; 0: none.
	Stuck  bool
	Passes int
}

// GPU is a GPU of a host, with the plan's devices on it and their ranks.
type GPU struct {
	gpu.GPU
	Host    *Host
	Devices []plan.Device
	Ranks   []int
}

func (in *Input) prepare() {
	in.Hosts = slices.Clone(in.Hosts)
	for i := range in.Hosts {
		h := &in.Hosts[i]
		h.In, h.At = in, i
		if in.Plan != nil {
			h.Part = in.Plan.Hosts[i]
		}
		h.findGPUs()
	}
}

// findGPUs brings the GPUs of the facts and the plan's devices together.
func (h *Host) findGPUs() {
	h.GPUs = nil
	if h.Facts.Devices == nil || h.Facts.Devices.Inventory == nil {
		return
	}
	for _, card := range h.Facts.Devices.Inventory.GPUs {
		g := &GPU{GPU: card, Host: h}
		for _, device := range h.Part.Devices {
			if g.Holds(device) && !slices.Contains(g.Devices, device) {
				g.Devices = append(g.Devices, device)
				g.Ranks = append(g.Ranks, RanksOf(h.In.Plan, h.At, device)...)
			}
		}
		h.GPUs = append(h.GPUs, g)
	}
}

// Holds reports whether a device of the plan is the GPU or a part of it. A lost GPU may not tell its UUID, but where it
// is.
func (g *GPU) Holds(d plan.Device) bool {
	if d.IsInstance() || g.UUID == "" || d.UUID == "" {
		return d.PCI != "" && g.PCI == d.PCI
	}
	return g.UUID == d.UUID
}

// RanksOf are the ranks of a host that have a device.
func RanksOf(p *plan.Plan, host int, d plan.Device) []int {
	var ranks []int
	h := p.Hosts[host]
	for _, r := range p.Ranks[h.FirstRank : h.FirstRank+h.Ranks] {
		if r.Device != nil && *r.Device == d {
			ranks = append(ranks, r.Rank)
		}
	}
	return ranks
}

// IsUsed reports whether the plan uses the GPU; without a plan all count.
func (g *GPU) IsUsed() bool { return g.Host.In.Plan == nil || len(g.Devices) > 0 }

// Answers reports whether the GPU's driver tells of it.
func (g *GPU) Answers() bool { return g.State == gpu.StateOK || g.State == "" }

// Sisters are the other GPUs of the same kind on the host that answer.
func (g *GPU) Sisters() []*GPU {
	others := func(s *GPU) bool { return s == g || s.Name != g.Name || !s.Answers() }
	return slices.DeleteFunc(slices.Clone(g.Host.GPUs), others)
}

// Find makes a finding about the GPU.
func (g *GPU) Find(fix, format string, args ...any) Findings {
	where := Finding{Host: g.Host.Name, GPU: &g.Index}
	if len(g.Ranks) == 1 {
		where.Rank = &g.Ranks[0]
	}
	if !g.IsUsed() {
		format = "(no rank uses it) " + format
	}
	return Find(where, fix, format, args...)
}

// Find makes a finding about the host.
func (h *Host) Find(fix, format string, args ...any) Findings {
	return Find(Finding{Host: h.Name}, fix, format, args...)
}

// Find makes a finding about several hosts.
func (in *Input) Find(fix, format string, args ...any) Findings {
	return Find(Finding{}, fix, format, args...)
}

// RunsWith is what workers are going to run with.
func (h *Host) RunsWith() facts.Software {
	if h.Software != (facts.Software{}) || h.Facts.Software == nil {
		return h.Software
	}
	return *h.Facts.Software
}

// UsesGPUs reports whether ranks of the host use some, or may.
func (h *Host) UsesGPUs() bool { return h.In.Plan == nil || len(h.Part.Devices) > 0 }

// InContainer chooses the advice that fits where the host is a container.
func (h *Host) InContainer(there, elsewhere string) string {
	if h.Facts.Container != "" {
		return there
	}
	return elsewhere
}

// IsGivenPart reports whether a host has been given a part of a machine.
func (h *Host) IsGivenPart() bool {
	return h.Facts.Container != "" || h.Facts.Environ["SLURM_JOB_ID"] != ""
}

// ByNetwork reports whether the ranks' data crosses hosts by NCCL, which takes InfiniBand where it finds some. Without
// a plan it may.
func (in *Input) ByNetwork() bool {
	return in.Plan == nil || len(in.Hosts) > 1 && in.Plan.Backend == "nccl"
}

// Variable is what a host's first rank is given by the job file; defaults do not count, and secrets are not looked
// into, as findings quote what they are about.
func (h *Host) Variable(name string) string {
	if h.Part.Ranks == 0 {
		return ""
	}
	vars, err := environ.Of(h.In.Plan, h.Part.FirstRank, plan.Meeting{})
	if err != nil {
		return "" // the plan has evaluated it before
	}
	for _, v := range vars {
		if v.Name == name && !v.Default && !v.Sensitive {
			return v.Value
		}
	}
	return ""
}

// maxNamed is how many hosts are named one by one.
const maxNamed = 8

// List joins names of hosts, of many the first ones.
func List(names []string) string { return text.List(names, maxNamed) }

// IsMany reports whether not all hosts of a list are named.
func IsMany(n int) bool { return n > maxNamed }

// Describe names a process: python (pid 4242, ann, 14.2 GiB).
func Describe(command string, pid int, user string, memory *uint64) string {
	what := fmt.Sprintf("pid %d", pid)
	if user != "" {
		what += ", " + user
	}
	if memory != nil {
		what += ", " + text.Bytes(*memory)
	}
	name := Program(command)
	if name == "" {
		name = "a process"
	}
	return name + " (" + what + ")"
}

// maxHolders is how many processes are named one by one.
const maxHolders = 4

// Holders joins descriptions of processes, of many the first ones.
func Holders(all []string) string {
	if n := len(all); n > maxHolders {
		all = append(slices.Clone(all[:maxHolders]), fmt.Sprintf("%d more", n-maxHolders))
	}
	return strings.Join(all, ", ")
}

// Program is a program's name without its folder and arguments; "" where the driver does not tell it, as of other
// containers' processes.
func Program(command string) string {
	name, _, _ := strings.Cut(command, " ")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, "[") {
		return ""
	}
	return name
}

// IsMPSServer tells the server of CUDA's MPS, which works for others.
func IsMPSServer(command string) bool { return Program(command) == "nvidia-cuda-mps-server" }

// IsSister reports whether another host has GPUs of the same kind, and both are whole machines.
func (h *Host) IsSister(o *Host) bool {
	isWhole := !h.IsGivenPart() && !o.IsGivenPart()
	return isWhole && len(h.GPUs) > 0 && len(o.GPUs) > 0 && h.GPUs[0].Name == o.GPUs[0].Name
}

// Names are the names of hosts.
func Names(hosts []Host) []string {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	return names
}
