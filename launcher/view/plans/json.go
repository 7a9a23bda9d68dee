package plans

import (
	"io"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

type planJSON struct {
	Version   int            `json:"version"`
	Job       string         `json:"job"`
	WorldSize int            `json:"world_size"`
	Backend   string         `json:"backend"`
	Hosts     []planHostJSON `json:"hosts"`
	Ranks     []planRankJSON `json:"ranks"`
	Mode      string         `json:"mode,omitempty"`  // "independent": ranks do not talk to each other
	Tasks     []planTaskJSON `json:"tasks,omitempty"` // that the ranks' places take one after the other
	Groups    []groupJSON    `json:"groups"`
	Warnings  []warningJSON  `json:"warnings"`
	Notes     []warningJSON  `json:"notes"`
	Memory    *memoryJSON    `json:"memory,omitempty"` // only with a memory block
}

type warningJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Host    string `json:"host,omitempty"`
}

type planHostJSON struct {
	Name       string        `json:"name"`
	HostID     string        `json:"host_id"`
	FirstRank  int           `json:"first_rank"`
	Ranks      int           `json:"ranks"`
	Visibility string        `json:"visibility,omitempty"`
	Names      string        `json:"device_names,omitempty"`
	MPS        []planMPSJSON `json:"mps,omitempty"`
}

// planMPSJSON is a device whose ranks share it by MPS; limits are the most that one of them has.
type planMPSJSON struct {
	UUID    string  `json:"uuid"`
	Ranks   []int   `json:"ranks"`
	Threads float64 `json:"active_thread_percentage,omitempty"`
	Memory  uint64  `json:"pinned_memory_limit,omitempty"` // bytes
}

type planRankJSON struct {
	Rank      int                `json:"rank"`
	LocalRank int                `json:"local_rank"`
	Host      string             `json:"host"`
	GPU       *planGPUJSON       `json:"gpu"`  // null: none
	CPUs      []int              `json:"cpus"` // null: not bound
	NUMA      *int               `json:"numa"`
	NIC       *string            `json:"nic"` // null: one host, or not known
	Env       map[string]varJSON `json:"env"`
}

type planTaskJSON struct {
	Task   int      `json:"task"`
	Words  []string `json:"words"`
	Source string   `json:"source"`
}

type planGPUJSON struct {
	gpu.ID
	Name string `json:"name"`
	MIG  *int   `json:"mig,omitempty"` // number of the MIG device on its GPU
	// Profile is the MIG device's, such as "1g.10gb".
	Profile string `json:"profile,omitempty"`
	Seen    int    `json:"seen_as"` // its number to the rank
}

type groupJSON struct {
	Name  string `json:"name"`
	Ranks [2]int `json:"ranks"` // the first and the last
	Link  string `json:"link"`  // the slowest between two of them
	Pair  [2]int `json:"pair"`  // whose it is
	Fast  bool   `json:"fast"`
}

type varJSON struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// PlanJSON writes a plan as one JSON object (version 1). What is only known at the
// start (MASTER_ADDR, MASTER_PORT and what is made of them, the run's id) is left out of the environments.
func PlanJSON(w io.Writer, p *plan.Plan) error {
	out := planJSON{
		Version: 1, Job: p.Job, WorldSize: p.WorldSize, Backend: p.Backend, Groups: []groupJSON{},
		Warnings: problemsJSON(p.Warnings), Notes: problemsJSON(p.Notes),
		Memory: memoryOf(p),
	}
	if p.Independent {
		out.Mode = "independent"
	}
	for i, task := range p.Tasks {
		out.Tasks = append(out.Tasks, planTaskJSON{i, append([]string{}, task.Words...), task.Source})
	}
	for i, h := range p.Hosts {
		names, _ := environ.DeviceNames(p, i)
		out.Hosts = append(out.Hosts, planHostJSON{h.Name, h.ID, h.FirstRank, h.Ranks, h.Visibility, names,
			mpsJSON(p.MPS(i))})
	}
	for _, g := range p.Groups {
		out.Groups = append(out.Groups, groupJSON{g.Name, [2]int{g.First, g.First + g.Size - 1},
			string(g.Link), g.Pair, g.Fast()})
	}
	for _, r := range p.Ranks {
		rank, err := rankJSON(p, r)
		if err != nil {
			return err
		}
		out.Ranks = append(out.Ranks, rank)
	}
	return terminal.WriteJSON(w, out)
}

func problemsJSON(problems []plan.Problem) []warningJSON {
	all := []warningJSON{}
	for _, p := range problems {
		all = append(all, warningJSON{Code: p.Code, Message: p.Message, Host: p.Host})
	}
	return all
}

func rankJSON(p *plan.Plan, r plan.Rank) (planRankJSON, error) {
	vars, err := environ.Of(p, r.Rank, plan.Meeting{})
	out := planRankJSON{Rank: r.Rank, LocalRank: r.Local, Host: p.Hosts[r.Host].Name, CPUs: r.CPUs,
		NUMA: r.Node, Env: map[string]varJSON{}}
	for _, v := range vars {
		if !isKnownAtStart(v) {
			out.Env[v.Name] = varJSON{v.Shown(), v.Source}
		}
	}
	if r.NIC != "" {
		out.NIC = &r.NIC
	}
	if d := r.Device; d != nil {
		out.GPU = &planGPUJSON{ID: d.ID, Name: d.Name, Seen: p.Seen(r.Rank)}
		if d.IsInstance() {
			out.GPU.MIG, out.GPU.Profile = &d.MIG, d.Profile
		}
	}
	return out, err
}

func mpsJSON(gpus []plan.MPSGPU) []planMPSJSON {
	var all []planMPSJSON
	for _, g := range gpus {
		all = append(all, planMPSJSON{g.Device.UUID, g.Ranks, g.Threads, g.Memory})
	}
	return all
}

// isKnownAtStart reports whether a variable's value is made when the run starts. A daemon
// that is there already has its folder before.
func isKnownAtStart(v plan.Var) bool {
	return knownAtStart[v.Name] || v.Value == "" && (v.Name == mps.PipeDirectory || v.Name == mps.LogDirectory)
}

var knownAtStart = map[string]bool{"MASTER_ADDR": true, "MASTER_PORT": true, "MUSTER_RUN": true, "TORCHELASTIC_RUN_ID": true, "JAX_COORDINATOR_ADDRESS": true}
