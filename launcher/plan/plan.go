// Package plan decides which rank runs where, on which devices and CPUs. It is pure: the same job and facts give the
// same bytes; no clock, network, file or chance. It does not know how facts were collected.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plan/place"
	"github.com/muster-dev/muster/launcher/plural"
)

// Plan is what an attempt of a job looks like, less what is only known when it starts (see Meeting). Environments are
// made per rank on demand: see package environ.
type Plan struct {
	Job       string
	Command   []string
	Backend   string // "gloo", "nccl" or "none"
	WorldSize int
	Hosts     []Host
	Ranks     []Rank
	// Independent is set where ranks do not talk to each other.
	Independent bool `json:",omitempty"`
	// Tasks are taken one after the other by whichever rank's place is free; none: each rank is one.
	Tasks  []config.Task `json:",omitempty"`
	Groups []Group       // that the job file asks for
	// Masters are the addresses that could serve as MASTER_ADDR, best first, and those that were passed over, with
	// the reason.
	Masters  []Master
	Warnings []Problem // that do not keep the job from running; see also check/lint
	Notes    []Problem // what was found and taken into account
	// Memory is what the job is estimated to need of its GPUs, nil without a memory block.
	Memory *memory.Estimate `json:",omitempty"`
	// MemoryError says why that cannot be estimated: the layout contradicts itself.
	MemoryError error `json:"-"`

	Config *config.Job  `json:"-"` // what the plan is for
	Facts  []facts.Host `json:"-"` // of each host
}

// Host is a host's part in the plan.
type Host struct {
	Name      string // as in the job file
	ID        string // host id of its facts
	FirstRank int
	place.Share
}

// Device is what a rank is given.
type Device = device.Device

// Problem is a reason why there is no plan, or something to know about one.
type Problem = place.Problem

// Rank is a rank's place.
type Rank struct {
	Rank   int
	Local  int
	Host   int     // index of Plan.Hosts
	Device *Device // nil: none
	// CPUs are those that it is bound to, physical cores with their siblings, and Node the NUMA node that they and
	// its device are of; nil: it is not bound.
	CPUs []int
	Node *int
	NIC  string // the nearest InfiniBand device of its GPU, else the interface to other hosts; "" for one host

	cores int // behind CPUs
}

// Make plans job on hosts with these facts, in the order of job.Hosts. All problems are returned at once.
func Make(job *config.Job, hosts []facts.Host) (*Plan, []Problem) {
	if problems := sameMachines(job, hosts); len(problems) > 0 {
		return nil, problems
	}
	p := &Plan{Job: job.Name, Command: job.Command, Independent: job.Independent, Tasks: job.Tasks}
	p.Config, p.Facts = job, hosts
	if problems := placeAll(p); len(problems) > 0 {
		return nil, problems
	}
	p.Backend = backend(p)
	p.Masters = masters(hosts[0], len(hosts))
	for i := range p.Hosts {
		bind(p, i)
		nameNICs(p, i)
	}
	p.Groups = findGroups(p)
	if job.Memory != nil {
		p.Memory, p.MemoryError = memory.Make(*job.Memory, p.MemoryLayout())
	}
	return p, nil
}

// World is how many workers there are in all: the ranks, or the tasks where there are some.
func (p *Plan) World() int { return cmp.Or(len(p.Tasks), p.WorldSize) }

// Unit names what one worker is.
func (p *Plan) Unit() string {
	if len(p.Tasks) > 0 {
		return "task"
	}
	return "rank"
}

// RanksOf are the ranks of a host.
func (p *Plan) RanksOf(host int) []Rank {
	h := p.Hosts[host]
	return p.Ranks[h.FirstRank : h.FirstRank+h.Ranks]
}

// Claims are the devices that a run takes on a host, by UUID, and whether it must be alone on them.
func (p *Plan) Claims(host int) (uuids []string, alone bool) {
	if p.Config.WithOthers() {
		return nil, false
	}
	for _, d := range p.Hosts[host].Devices {
		if d.UUID != "" {
			uuids = append(uuids, d.UUID)
		}
	}
	return uuids, p.Hosts[host].Claimed
}

// Seen is the number by which a rank calls its device: that of cuda:N.
func (p *Plan) Seen(rank int) int {
	r := p.Ranks[rank]
	if p.Hosts[r.Host].Visibility == "rank" {
		return 0
	}
	return r.Local
}

// Threads are a rank's OMP_NUM_THREADS, where nobody sets another.
func (p *Plan) Threads(rank int) int {
	n, _ := p.ThreadShare(rank)
	return n
}

// ThreadShare is a rank's share of the host's cores, and no more than it is bound to, with the reason.
func (p *Plan) ThreadShare(rank int) (n int, why string) {
	r := p.Ranks[rank]
	h, cores := &p.Hosts[r.Host], p.Facts[r.Host].CPUs.Physical
	n = max(1, cores/h.Ranks)
	if r.cores > 0 && r.cores < n {
		return r.cores, "the physical cores that the rank is bound to"
	}
	return n, fmt.Sprintf("%s of %s / %s there",
		plural.Of(cores, "allowed physical core"), h.Name, plural.Of(h.Ranks, "rank"))
}

// backend is the job's, or what suits the devices.
func backend(p *Plan) string {
	switch {
	case p.Config.Backend != "":
		return p.Config.Backend
	case slices.ContainsFunc(p.Hosts, func(h Host) bool { return len(h.Devices) > 0 }):
		return "nccl"
	}
	return "gloo"
}

// sameMachines finds hosts that turned out to be one running system under two names.
func sameMachines(job *config.Job, hosts []facts.Host) []Problem {
	first := map[string]string{}
	var problems []Problem
	for i, h := range hosts {
		name := job.Hosts[i].Name
		if other, seen := first[h.ID]; seen {
			problems = append(problems, Problem{Code: "same_machine", Host: name, Message: fmt.Sprintf(
				"%s and %s are the same machine (%s): its ranks would be started twice; leave one of the names out",
				other, name, h.Hostname)})
			continue
		}
		first[h.ID] = name
	}
	return problems
}
