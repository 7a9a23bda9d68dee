package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Difference is something that is not the same everywhere.
type Difference struct {
	What   string   // a variable, or in words what hosts have
	Values []Shared // the most common first
}

// Shared is a value and who has it.
type Shared struct {
	Value string
	Who   string // ranks as spans, or names of hosts
	n     int
}

// numbered are variables that differ from rank to rank because they must.
var numbered = []string{"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MUSTER_RANK", "MUSTER_LOCAL_RANK", "MUSTER_DEVICE",
	"JAX_LOCAL_DEVICE_IDS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}

// Diff tells what differs between ranks' environments, less what must, and between hosts.
func (p *Plan) Diff(m Meeting) (ranks, hosts []Difference, err error) {
	values := map[string]map[string][]int{}
	for rank := range p.Ranks {
		vars, err := p.Env(rank, m)
		if err != nil {
			return nil, nil, err
		}
		for _, v := range vars {
			if slices.Contains(numbered, v.Name) {
				continue
			}
			if values[v.Name] == nil {
				values[v.Name] = map[string][]int{}
			}
			values[v.Name][v.Shown()] = append(values[v.Name][v.Shown()], rank)
		}
	}
	for name, by := range values {
		if d, differs := p.ofRanks(name, by); differs {
			ranks = append(ranks, d)
		}
	}
	slices.SortFunc(ranks, func(a, b Difference) int { return strings.Compare(a.What, b.What) })
	return ranks, p.hostDiff(), nil
}

func (p *Plan) ofRanks(name string, by map[string][]int) (Difference, bool) {
	d := Difference{What: name}
	known := 0
	for value, ranks := range by {
		d.Values = append(d.Values, Shared{Value: value, Who: "ranks " + text.Ranges(ranks), n: len(ranks)})
		known += len(ranks)
	}
	if known < p.WorldSize {
		d.Values = append(d.Values, Shared{Value: "(not set)", Who: "the others", n: p.WorldSize - known})
	}
	sortShared(d.Values)
	return d, len(d.Values) > 1
}

func sortShared(values []Shared) {
	slices.SortFunc(values, func(a, b Shared) int {
		if a.n != b.n {
			return b.n - a.n
		}
		return strings.Compare(a.Value, b.Value)
	})
}

// hostThings are what hosts of a job are usually alike in.
var hostThings = []struct {
	what string
	of   func(f facts.Host) string
}{
	{"kernel", func(f facts.Host) string { return f.Kernel }},
	{"driver", func(f facts.Host) string { return ofDevices(f, func(d *facts.Devices) *string { return d.Driver }) }},
	{"CUDA of the driver", func(f facts.Host) string { return ofDevices(f, func(d *facts.Devices) *string { return d.CUDA }) }},
	{"GPUs", gpuNames},
	{"physical cores", func(f facts.Host) string { return fmt.Sprint(f.CPUs.Physical) }},
	{"container", func(f facts.Host) string { return f.Container }},
	{"python", func(f facts.Host) string { return ofSoftware(f).Python }},
	{"torch", func(f facts.Host) string { return ofSoftware(f).Torch }},
	{"NCCL", func(f facts.Host) string { return ofSoftware(f).NCCL }},
}

func ofDevices(f facts.Host, of func(*facts.Devices) *string) string {
	if f.Devices == nil || f.Devices.Inventory == nil {
		return ""
	}
	if value := of(f.Devices); value != nil {
		return *value
	}
	return ""
}

func ofSoftware(f facts.Host) facts.Software {
	if f.Software == nil {
		return facts.Software{}
	}
	return *f.Software
}

// gpuNames counts a host's cards by name.
func gpuNames(f facts.Host) string {
	if f.Devices == nil || f.Devices.Inventory == nil {
		return ""
	}
	counts := map[string]int{}
	var names []string
	for _, g := range f.Devices.Inventory.GPUs {
		if counts[g.Name]++; counts[g.Name] == 1 {
			names = append(names, g.Name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d x %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}

func (p *Plan) hostDiff() []Difference {
	var found []Difference
	for _, thing := range hostThings {
		by := map[string][]string{}
		for i, f := range p.Facts {
			value := orNone(thing.of(f))
			by[value] = append(by[value], p.Hosts[i].Name)
		}
		if len(by) < 2 {
			continue
		}
		d := Difference{What: thing.what}
		for value, names := range by {
			d.Values = append(d.Values, Shared{Value: value, Who: someNames(names), n: len(names)})
		}
		sortShared(d.Values)
		found = append(found, d)
	}
	return found
}
