package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/failure/restart"
)

// Meeting is what is only known when an attempt starts: how the ranks find each other.
type Meeting struct {
	Run     string
	Attempt int
	// Task is the number of the task that the rank's place is taken by, in a plan that has
	// tasks.
	Task       int
	MasterAddr string
	MasterPort int
	// Locals is each host's own address on its way to MasterAddr.
	Locals []string
	// Software is what each host was found to run with once setup was done; shorter where
	// that is not known.
	Software []facts.Software
	// InForce is what restarts have changed.
	InForce restart.InForce
	// MPS is where the daemons of each host's devices are, by UUID, once they run.
	MPS []map[string]MPSFolders
	// Environ is what each host's environment told once setup was done: see facts.Telling.
	Environ []map[string]string
}

// Var is a variable of a rank's environment and where it comes from.
type Var struct {
	Name   string
	Value  string
	Source string // a rule in words, or FILE:LINE
	// Default is set where the host's own environment or setup wins over it.
	Default bool
	// OfHost is set where it is the host's own.
	OfHost bool
	// Sensitive is set where the value is a secret, to be seen by the worker only.
	Sensitive bool
}

// Shown is the value as people may see it.
func (v Var) Shown() string {
	if v.Sensitive {
		return facts.Hidden
	}
	return v.Value
}

const contract = "torchrun's contract"

// Env returns a rank's environment as the plan makes it, sorted by name, without
// what the host itself adds.
func (p *Plan) Env(rank int, m Meeting) ([]Var, error) {
	r := p.Ranks[rank]
	given, err := p.given(r, m)
	if err != nil {
		return nil, err
	}
	blocks, _ := p.ncclVars(r.Host, m, given)
	merged, _ := p.allocatorVars(r.Host, m, given)
	layers := [][]Var{p.defaults(r, m), p.derived(r.Host, m), blocks, p.mpsShares(r), given, merged, p.contract(r, m), p.devices(r, m), p.jax(r, m), p.mpsFolders(r, m)}
	byName := map[string]Var{}
	for _, layer := range layers {
		for _, v := range layer {
			byName[v.Name] = v
		}
	}
	vars := make([]Var, 0, len(byName))
	for _, v := range byName {
		vars = append(vars, v)
	}
	slices.SortFunc(vars, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	return vars, nil
}

// WholeEnv is a rank's environment with what the host itself adds, which wins over
// defaults; setup may change that.
func (p *Plan) WholeEnv(rank int, m Meeting, host map[string]string) ([]Var, error) {
	vars, err := p.Env(rank, m)
	if err != nil {
		return nil, err
	}
	name := p.Hosts[p.Ranks[rank].Host].Name
	planned := map[string]bool{}
	for i, v := range vars {
		planned[v.Name] = true
		if value, set := host[v.Name]; set && v.Default {
			vars[i] = Var{Name: v.Name, Value: value, Source: "the environment of " + name, OfHost: true}
		}
	}
	for variable, value := range host {
		if !planned[variable] {
			vars = append(vars, Var{Name: variable, Value: value, Source: "the environment of " + name, OfHost: true, Sensitive: looksSecret(variable)})
		}
	}
	slices.SortFunc(vars, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	return vars, nil
}

// secretWords are parts of names by which hosts' own variables are taken for secrets: what
// is shown of an environment is often passed on.
var secretWords = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "NCCL_PSK"}

func looksSecret(name string) bool {
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(strings.ToUpper(name), word) })
}

// given is the job file's env.
func (p *Plan) given(r Rank, m Meeting) ([]Var, error) {
	scope := config.RankScope{
		Global: p.number(r, m), Local: r.Local, WorldSize: p.World(),
		HostName: p.Hosts[r.Host].Name, HostIndex: r.Host, HostEnv: p.environOf(r.Host, m),
	}
	if d := r.Device; d != nil {
		scope.GPU = &config.RankGPU{UUID: d.UUID, PCI: d.PCI, Index: d.Index}
	}
	vars, diags := p.Config.EnvUnder(m.InForce.Rules, r.Host, scope)
	if diags.HasErrors() {
		return nil, fmt.Errorf("env of rank %d: %w", r.Rank, diags)
	}
	given := make([]Var, 0, len(vars))
	for _, v := range vars {
		given = append(given, Var{Name: v.Name, Value: v.Value, Source: v.Source, Sensitive: v.Sensitive})
	}
	return given, nil
}

// number is what a worker is counted as: its rank, or its task.
func (p *Plan) number(r Rank, m Meeting) int {
	if len(p.Tasks) > 0 {
		return m.Task
	}
	return r.Rank
}

// contract is what training scripts know from torchrun, and what muster adds. Nothing else
// sets these. Independent ranks get muster's alone: a library that finds LOCAL_RANK or
// WORLD_SIZE takes itself for a part of a larger job and waits for the others.
func (p *Plan) contract(r Rank, m Meeting) []Var {
	own := []Var{
		contractVar("MUSTER_RUN", m.Run, "muster"),
		contractVar("MUSTER_RANK", p.number(r, m), "muster"),
		contractVar("MUSTER_WORLD_SIZE", p.World(), "muster"),
		contractVar("MUSTER_LOCAL_RANK", r.Local, "muster"),
		contractVar("MUSTER_ATTEMPT", m.Attempt, "muster"),
	}
	if p.Independent {
		return own
	}
	return append(p.torchrun(r, m), own...)
}

func contractVar(name string, value any, source string) Var {
	return Var{Name: name, Value: fmt.Sprint(value), Source: source}
}

func (p *Plan) torchrun(r Rank, m Meeting) []Var {
	h := p.Hosts[r.Host]
	return []Var{
		contractVar("RANK", r.Rank, contract),
		p.localRank(r),
		contractVar("WORLD_SIZE", p.WorldSize, contract),
		contractVar("LOCAL_WORLD_SIZE", h.Ranks, contract),
		contractVar("GROUP_RANK", r.Host, contract),
		contractVar("GROUP_WORLD_SIZE", len(p.Hosts), contract),
		contractVar("ROLE_RANK", r.Rank, contract),
		contractVar("ROLE_WORLD_SIZE", p.WorldSize, contract),
		contractVar("ROLE_NAME", "default", contract),
		contractVar("MASTER_ADDR", m.MasterAddr, "an address of "+p.Hosts[0].Name+" that every host reached"),
		contractVar("MASTER_PORT", m.MasterPort, "held for rank 0 on "+p.Hosts[0].Name),
		contractVar("TORCHELASTIC_RUN_ID", m.Run, contract),
		contractVar("TORCHELASTIC_RESTART_COUNT", m.Attempt, contract),
		contractVar("TORCHELASTIC_MAX_RESTARTS", p.maxRestarts(), contract),
		contractVar("TORCHELASTIC_USE_AGENT_STORE", "False", "rank 0 hosts the store itself"),
	}
}

// defaults hold where nobody else has set the name.
func (p *Plan) defaults(r Rank, m Meeting) []Var {
	threads, why := p.ThreadShare(r.Rank)
	vars := []Var{
		{Name: "PYTHONUNBUFFERED", Value: "1", Source: "so that last words are not lost", Default: true},
		{Name: "OMP_NUM_THREADS", Value: strconv.Itoa(threads), Source: why, Default: true},
	}
	if p.Independent {
		return vars
	}
	vars = append(vars, Var{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Value: "1", Source: contract, Default: true})
	if nic, why := p.socketInterface(r.Host, m); nic != "" {
		vars = append(vars, Var{Name: "GLOO_SOCKET_IFNAME", Value: nic, Source: why, Default: true})
		if p.Backend == "nccl" {
			// "=": exactly this name, where NCCL would take eth1 to mean eth10 too.
			vars = append(vars, Var{Name: "NCCL_SOCKET_IFNAME", Value: "=" + nic, Source: why, Default: true})
		}
	}
	return vars
}

// Interface is the interface by which a host reaches the head host; "" where that is not
// known.
func (p *Plan) Interface(host int, m Meeting) string {
	if host >= len(m.Locals) {
		return ""
	}
	return interfaceOf(p.Facts[host], m.Locals[host])
}

// socketInterface names the interface that leads a host to the head host, where the
// libraries could choose another: there are several, or the host's own name (which
// gloo looks up) resolves to an address that is not on it.
func (p *Plan) socketInterface(host int, m Meeting) (nic, why string) {
	if len(p.Hosts) == 1 || p.Backend == "none" || host >= len(m.Locals) {
		return "", ""
	}
	f, local := p.Facts[host], m.Locals[host]
	nic = interfaceOf(f, local)
	switch {
	case nic == "":
		return "", ""
	case usable(f) > 1:
		return nic, fmt.Sprintf("of several interfaces the one that leads to %s", m.MasterAddr)
	case !slices.Contains(f.HostnameAddrs, local):
		return nic, fmt.Sprintf("the name %s does not resolve to %s there", f.Hostname, local)
	}
	return "", ""
}

// Digest names the plan: launcher and coordinator each make one from the same source and facts and must come to the
// same.
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
