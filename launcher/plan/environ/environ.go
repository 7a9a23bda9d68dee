// Package environ makes the environment of each rank of a plan, with the source of every value: torchrun's contract,
// the job file's env, the nccl and allocator blocks, visible devices, MPS, and defaults where nobody has set a name.
package environ

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
)

const contract = "torchrun's contract"

// builder makes the environments of a host's ranks.
type builder struct {
	*plan.Plan
	host    int
	meeting *plan.Meeting
	nccl    nccl.Host // as far as NCCL's settings concern it
}

func on(p *plan.Plan, host int, m *plan.Meeting) *builder {
	return &builder{Plan: p, host: host, meeting: m, nccl: ncclHost(p, host, m)}
}

// Of returns a rank's environment as the plan makes it, sorted by name, without what the host itself adds.
func Of(p *plan.Plan, rank int, m plan.Meeting) ([]plan.Var, error) {
	return on(p, p.Ranks[rank].Host, &m).of(p.Ranks[rank])
}

func (b *builder) of(r plan.Rank) ([]plan.Var, error) {
	given, err := b.given(r)
	if err != nil {
		return nil, err
	}
	block, _ := b.ncclVars(given)
	merged, _ := b.allocatorVars(given)
	vars := slices.Concat(b.defaults(r), b.derived(), block, b.mpsShares(r), given, merged,
		b.contract(r), b.devices(r), b.jax(r), b.mpsFolders(r))
	sortByName(vars)
	last := vars[:0] // of each name: later layers win
	for i, v := range vars {
		if i+1 == len(vars) || vars[i+1].Name != v.Name {
			last = append(last, v)
		}
	}
	return last, nil
}

func sortByName(vars []plan.Var) {
	slices.SortStableFunc(vars, func(a, b plan.Var) int { return strings.Compare(a.Name, b.Name) })
}

// Whole is a rank's environment with what the host itself adds, which wins over defaults; setup may change that.
func Whole(p *plan.Plan, rank int, m plan.Meeting, host map[string]string) ([]plan.Var, error) {
	vars, err := Of(p, rank, m)
	if err != nil {
		return nil, err
	}
	source := "the environment of " + p.Hosts[p.Ranks[rank].Host].Name
	planned := map[string]bool{}
	for i, v := range vars {
		planned[v.Name] = true
		if value, set := host[v.Name]; set && v.Default {
			vars[i] = plan.Var{Name: v.Name, Value: value, Source: source, OfHost: true}
		}
	}
	for name, value := range host {
		if !planned[name] {
			secret := looksSecret(name)
			vars = append(vars, plan.Var{Name: name, Value: value, Source: source, OfHost: true, Sensitive: secret})
		}
	}
	sortByName(vars)
	return vars, nil
}

// secretParts are parts of names by which hosts' own variables are taken for secrets: what is shown of an environment
// is often passed on.
var secretParts = []string{
	"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "NCCL_PSK",
}

func looksSecret(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(upper, part) })
}

// Command is the command of an attempt: the job's, with the task's words and those that restarts append.
func Command(p *plan.Plan, m plan.Meeting) []string {
	command := p.Command
	if len(p.Tasks) > 0 {
		command = slices.Concat(command, p.Tasks[m.Task].Words)
	}
	for _, rule := range m.InForce.Rules {
		command = slices.Concat(command, p.Config.Restart.On[rule].Args)
	}
	return command
}

// given is the job file's env.
func (b *builder) given(r plan.Rank) ([]plan.Var, error) {
	scope := config.RankScope{
		Global: b.number(r), Local: r.Local, WorldSize: b.World(),
		HostName: b.Hosts[b.host].Name, HostIndex: b.host, HostEnv: b.environ(),
	}
	if d := r.Device; d != nil {
		scope.GPU = &d.ID
	}
	vars, diags := b.Config.EnvUnder(b.meeting.InForce.Rules, b.host, scope)
	if diags.HasErrors() {
		return nil, fmt.Errorf("env of rank %d: %w", r.Rank, diags)
	}
	given := make([]plan.Var, len(vars))
	for i, v := range vars {
		given[i] = plan.Var{Name: v.Name, Value: v.Value, Source: v.Source, Sensitive: v.Sensitive}
	}
	return given, nil
}

// number is what a worker is counted as: its rank, or its task.
func (b *builder) number(r plan.Rank) int {
	if len(b.Tasks) > 0 {
		return b.meeting.Task
	}
	return r.Rank
}

// contract is what training scripts know from torchrun, and what muster adds. Nothing else sets these. Independent
// ranks get muster's alone: a library that finds LOCAL_RANK or WORLD_SIZE takes itself for a part of a larger job and
// waits for the others.
func (b *builder) contract(r plan.Rank) []plan.Var {
	own := []plan.Var{
		variable("MUSTER_RUN", b.meeting.Run, "muster"),
		variable("MUSTER_RANK", b.number(r), "muster"),
		variable("MUSTER_WORLD_SIZE", b.World(), "muster"),
		variable("MUSTER_LOCAL_RANK", r.Local, "muster"),
		variable("MUSTER_ATTEMPT", b.meeting.Attempt, "muster"),
	}
	if b.Independent {
		return own
	}
	return append(own, b.torchrun(r)...)
}

func variable(name string, value any, source string) plan.Var {
	return plan.Var{Name: name, Value: fmt.Sprint(value), Source: source}
}

func (b *builder) torchrun(r plan.Rank) []plan.Var {
	m, restarts, head := b.meeting, 0, b.Hosts[0].Name
	if b.Config.Restart != nil {
		restarts = b.Config.Restart.Attempts
	}
	return []plan.Var{
		variable("RANK", r.Rank, contract),
		b.localRank(r),
		variable("WORLD_SIZE", b.WorldSize, contract),
		variable("LOCAL_WORLD_SIZE", b.Hosts[b.host].Ranks, contract),
		variable("GROUP_RANK", b.host, contract),
		variable("GROUP_WORLD_SIZE", len(b.Hosts), contract),
		variable("ROLE_RANK", r.Rank, contract),
		variable("ROLE_WORLD_SIZE", b.WorldSize, contract),
		variable("ROLE_NAME", "default", contract),
		variable("MASTER_ADDR", m.MasterAddr, "an address of "+head+" that every host reached"),
		variable("MASTER_PORT", m.MasterPort, "held for rank 0 on "+head),
		variable("TORCHELASTIC_RUN_ID", m.Run, contract),
		variable("TORCHELASTIC_RESTART_COUNT", m.Attempt, contract),
		variable("TORCHELASTIC_MAX_RESTARTS", restarts, contract),
		variable("TORCHELASTIC_USE_AGENT_STORE", "False", "rank 0 hosts the store itself"),
	}
}

// localRank is the number of the rank's device among those that it sees.
func (b *builder) localRank(r plan.Rank) plan.Var {
	if b.Hosts[b.host].Visibility == "rank" {
		return variable("LOCAL_RANK", 0,
			"the rank sees one device, as number 0; MUSTER_LOCAL_RANK is its number on the host")
	}
	return variable("LOCAL_RANK", r.Local, contract)
}

// defaults hold where nobody else has set the name.
func (b *builder) defaults(r plan.Rank) []plan.Var {
	threads, why := b.ThreadShare(r.Rank)
	vars := []plan.Var{
		{Name: "PYTHONUNBUFFERED", Value: "1", Source: "so that last words are not lost", Default: true},
		{Name: "OMP_NUM_THREADS", Value: strconv.Itoa(threads), Source: why, Default: true},
	}
	if b.Independent {
		return vars
	}
	vars = append(vars, plan.Var{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Value: "1", Source: contract, Default: true})
	if nic, why := b.socketInterface(); nic != "" {
		vars = append(vars, plan.Var{Name: "GLOO_SOCKET_IFNAME", Value: nic, Source: why, Default: true})
		if b.Backend == "nccl" {
			// "=": exactly this name, where NCCL would take eth1 to mean eth10 too.
			vars = append(vars, plan.Var{Name: "NCCL_SOCKET_IFNAME", Value: "=" + nic, Source: why, Default: true})
		}
	}
	return vars
}

// Interface is the interface by which a host reaches the head host; "" where that is not known.
func Interface(p *plan.Plan, host int, m plan.Meeting) string {
	if host >= len(m.Locals) {
		return ""
	}
	return plan.InterfaceOf(p.Facts[host], m.Locals[host])
}

// socketInterface names the interface that leads a host to the head host, where the libraries could choose another:
// there are several, or the host's own name (which gloo looks up) resolves to an address that is not on it.
func (b *builder) socketInterface() (nic, why string) {
	if len(b.Hosts) == 1 || b.Backend == "none" {
		return "", ""
	}
	f := &b.Facts[b.host]
	nic = Interface(b.Plan, b.host, *b.meeting)
	switch {
	case nic == "":
		return "", ""
	case usable(f) > 1:
		return nic, fmt.Sprintf("of several interfaces the one that leads to %s", b.meeting.MasterAddr)
	case !slices.Contains(f.HostnameAddrs, b.meeting.Locals[b.host]):
		return nic, fmt.Sprintf("the name %s does not resolve to %s there", f.Hostname, b.meeting.Locals[b.host])
	}
	return "", ""
}

// usable counts the interfaces through which a host might reach others.
func usable(f *facts.Host) int {
	n := 0
	for _, nic := range f.NICs {
		if !nic.Loopback && nic.Up && len(nic.Addresses) > 0 {
			n++
		}
	}
	return n
}
