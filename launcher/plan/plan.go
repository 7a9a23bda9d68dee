// Package plan decides which rank runs where and what its environment is, and says
// why. It is pure: the same job and facts give the same bytes; no clock, network,
// file or chance. It does not know how facts were got.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/memory"
	"github.com/muster-dev/muster/launcher/plural"
)

// Plan is what an attempt of a job looks like, less what is only known when it
// starts (see Meeting). Environments are made per rank on demand: see Env.
type Plan struct {
	Job       string
	Command   []string
	Backend   string // "gloo", "nccl" or "none"
	WorldSize int
	Hosts     []Host
	Ranks     []Rank
	// Independent is set where ranks do not talk to each other.
	Independent bool `json:",omitempty"`
	// Tasks are taken one after the other by whichever rank's place is free; none: each rank
	// is one.
	Tasks  []config.Task `json:",omitempty"`
	Groups []Group       // that the job file asks for
	// Masters are the addresses that could serve as MASTER_ADDR, best first, and
	// those that were passed over, with the reason.
	Masters  []Master
	Warnings []Problem // that do not keep the job from running
	Notes    []Problem // what was found and heeded
	// Memory is what the job is estimated to need of its GPUs, nil without a memory block.
	Memory *memory.Estimate `json:",omitempty"`

	job   *config.Job
	facts []facts.Host
}

// Host is a host's part in the plan.
type Host struct {
	Name      string // as in the job file
	ID        string // host id of its facts
	FirstRank int
	Ranks     int
	// Devices are those of its ranks, in their order: as many as ranks, fewer where ranks
	// share them, more where a rank is to spread over several. Empty: ranks use none.
	Devices []Device
	// Visibility is "host" where every rank sees all devices and LOCAL_RANK is the number
	// of its own among them, "rank" where it sees its own only. "" without devices.
	Visibility string
	VisibleWhy string // why it is so
	// Names says how devices are named to ranks: "uuid" or "index".
	Names string
	// Claimed is set where no other run may have the devices: they were chosen as idle.
	Claimed bool

	variable string // by which ranks are shown devices
	hidden   bool   // ranks are to see no device, though there may be some
}

// Rank is a rank's place.
type Rank struct {
	Rank   int
	Local  int
	Host   int     // index of Plan.Hosts
	Device *Device // nil: none
	// CPUs are those that it is bound to, physical cores with their siblings, and Node the
	// NUMA node that they and its device are of; nil: it is not bound.
	CPUs []int
	Node *int
	NIC  string // the nearest InfiniBand device of its GPU, else the interface to other hosts; "" for one host

	cores int // behind CPUs
}

// Problem is a reason why there is no plan, or something to know of one.
type Problem struct {
	Code    string // stable, such as "same_machine"
	Message string
	Host    string // "" where it is about several
}

func (p Problem) Error() string { return p.Message }

// maxWorld bounds the number of ranks, far above any real job.
const maxWorld = 1 << 20

// Make plans job on hosts with these facts, in the order of job.Hosts. All problems
// are returned at once.
func Make(job *config.Job, hosts []facts.Host) (*Plan, []Problem) {
	if problems := sameMachines(job, hosts); len(problems) > 0 {
		return nil, problems
	}
	p := &Plan{Job: job.Name, Command: job.Command, Independent: job.Independent, Tasks: job.Tasks, job: job, facts: hosts}
	if problems := p.placeAll(); len(problems) > 0 {
		return nil, problems
	}
	p.Backend = p.backend()
	p.Masters = masters(hosts[0], len(hosts))
	for i := range p.Hosts {
		p.bind(i)
		p.nameNICs(i)
	}
	p.findGroups()
	p.Warnings = append(p.Warnings, p.checkGroups()...)
	p.Warnings = append(p.Warnings, p.LibraryProblems(Meeting{})...)
	p.Warnings = append(p.Warnings, p.mpsProblems()...)
	p.Warnings = append(p.Warnings, logouts(job, hosts)...)
	p.Warnings = append(p.Warnings, p.estimateMemory()...)
	p.Warnings = p.wanted(p.Warnings)
	p.Notes = append(p.Notes, p.migNotes()...)
	p.Notes = append(p.Notes, p.bufferNote()...)
	p.Notes = append(p.Notes, p.idleNote()...)
	p.Notes = append(p.Notes, p.memoryNotes()...)
	return p, nil
}

// World is how many workers there are in all: the ranks, or the tasks where there are some.
func (p *Plan) World() int {
	if len(p.Tasks) > 0 {
		return len(p.Tasks)
	}
	return p.WorldSize
}

// Unit is what one worker is, in a word.
func (p *Plan) Unit() string {
	if len(p.Tasks) > 0 {
		return "task"
	}
	return "rank"
}

// idleNote tells of places for more workers than there are tasks.
func (p *Plan) idleNote() []Problem {
	if len(p.Tasks) == 0 || len(p.Tasks) >= p.WorldSize {
		return nil
	}
	return []Problem{{Code: "idle_places", Message: fmt.Sprintf("there are %s for %s at a time: the rest stays idle", plural.Of(len(p.Tasks), "task"), plural.Of(p.WorldSize, "worker"))}}
}

// wanted are problems without those that the job file wants not to be told.
func (p *Plan) wanted(problems []Problem) []Problem {
	return slices.DeleteFunc(problems, func(problem Problem) bool { return slices.Contains(p.job.Check.Ignore, problem.Code) })
}

// backend is the job's, or what suits the devices.
func (p *Plan) backend() string {
	switch {
	case p.job.Backend != "":
		return p.job.Backend
	case slices.ContainsFunc(p.Hosts, func(h Host) bool { return len(h.Devices) > 0 }):
		return "nccl"
	}
	return "gloo"
}

// logouts warns of hosts where a logout, the launcher's own leaving among them, would
// hurt the run.
func logouts(job *config.Job, hosts []facts.Host) []Problem {
	var warnings []Problem
	for i, h := range hosts {
		l, name := h.Logind, job.Hosts[i].Name
		if l.Linger || !l.Session {
			continue
		}
		fix := fmt.Sprintf("; `loginctl enable-linger` on %s prevents it", name)
		if l.KillUserProcesses {
			warnings = append(warnings, Problem{Code: "logout_kills", Host: name, Message: name + ": systemd-logind kills the run there when you log out (KillUserProcesses=yes)" + fix})
		}
		if l.RemoveIPC {
			warnings = append(warnings, Problem{Code: "logout_removes_shm", Host: name, Message: name + ": systemd-logind deletes your /dev/shm files there when your last login ends (RemoveIPC=yes), which stops data loaders and NCCL if you detach" + fix})
		}
	}
	return warnings
}

// sameMachines finds hosts that turned out to be one running system under two names.
func sameMachines(job *config.Job, hosts []facts.Host) []Problem {
	first := map[string]string{}
	var problems []Problem
	for i, h := range hosts {
		name := job.Hosts[i].Name
		if other, seen := first[h.ID]; seen {
			problems = append(problems, Problem{Code: "same_machine", Host: name, Message: fmt.Sprintf(
				"%s and %s are the same machine (%s): its ranks would be started twice; leave one of the names out", other, name, h.Hostname)})
			continue
		}
		first[h.ID] = name
	}
	return problems
}

// Digest names the plan: launcher and coordinator each make one from the same
// source and facts and must come to the same.
func (p *Plan) Digest() (string, error) {
	sum := sha256.New()
	out := json.NewEncoder(sum)
	if err := out.Encode(p); err != nil {
		return "", fmt.Errorf("digest of plan: %w", err)
	}
	for rank := range p.Ranks {
		vars, err := p.Env(rank, Meeting{})
		if err != nil {
			return "", err
		}
		if err := out.Encode(vars); err != nil {
			return "", fmt.Errorf("digest of plan: %w", err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Facts are what a host has said of itself.
func (p *Plan) Facts(host int) facts.Host { return p.facts[host] }

// Python is the interpreter that the job file names; "" leaves it to the command.
func (p *Plan) Python() string { return p.job.Python }

// HostVariables are the names of hosts' variables that the job file refers to.
func (p *Plan) HostVariables() []string { return p.job.HostEnvNames() }

// Claims are the devices that a run takes on a host, by UUID, and whether it must be alone
// on them.
func (p *Plan) Claims(host int) (uuids []string, alone bool) {
	if p.job.WithOthers() {
		return nil, false
	}
	for _, d := range p.Hosts[host].Devices {
		if d.UUID != "" {
			uuids = append(uuids, d.UUID)
		}
	}
	return uuids, p.Hosts[host].Claimed
}

// HostScript returns a host's work folder and setup text as the job file has them.
func (p *Plan) HostScript(host int) (workdir, setup string) {
	h := p.job.Hosts[host]
	return h.Workdir, h.Setup
}
