// Package plan decides which rank runs where and what its environment is, and says
// why. It is pure: the same job and facts give the same bytes; no clock, network,
// file or chance. It does not know how facts were got.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
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
	// Masters are the addresses that could serve as MASTER_ADDR, best first, and
	// those that were passed over, with the reason.
	Masters  []Master
	Warnings []Problem // that do not keep the job from running

	job   *config.Job
	facts []facts.Host
}

// Host is a host's part in the plan.
type Host struct {
	Name      string // as in the job file
	ID        string // host id of its facts
	FirstRank int
	Ranks     int
	Threads   int // OMP_NUM_THREADS: allowed physical cores / ranks, at least 1
}

// Rank is a rank's place.
type Rank struct {
	Rank  int
	Local int
	Host  int // index of Plan.Hosts
}

// Problem is a reason why there is no plan.
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
	p := &Plan{Job: job.Name, Command: job.Command, Backend: job.Backend, job: job, facts: hosts}
	if p.Backend == "" {
		p.Backend = "gloo" // nothing here has a GPU yet
	}
	for i, h := range job.Hosts {
		p.place(i, h)
	}
	if p.WorldSize > maxWorld {
		return nil, []Problem{{Code: "world_size", Message: fmt.Sprintf("%d ranks are more than %d", p.WorldSize, maxWorld)}}
	}
	p.Masters = masters(hosts[0], len(hosts))
	p.Warnings = logouts(job, hosts)
	return p, nil
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

// place gives a host the next ranks: in the job file's order, contiguous per host.
func (p *Plan) place(index int, h config.Host) {
	count := h.PerHost
	if count == 0 {
		count = 1
	}
	p.Hosts = append(p.Hosts, Host{
		Name: h.Name, ID: p.facts[index].ID, FirstRank: p.WorldSize, Ranks: count,
		Threads: max(1, p.facts[index].CPUs.Physical/count),
	})
	for local := range count {
		p.Ranks = append(p.Ranks, Rank{Rank: p.WorldSize + local, Local: local, Host: index})
	}
	p.WorldSize += count
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

// HostScript returns a host's work folder and setup text as the job file has them.
func (p *Plan) HostScript(host int) (workdir, setup string) {
	h := p.job.Hosts[host]
	return h.Workdir, h.Setup
}
