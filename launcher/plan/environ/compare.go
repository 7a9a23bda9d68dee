package environ

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// Digest names a plan with its environments: launcher and coordinator each make one from the same source and facts
// and must come to the same.
func Digest(p *plan.Plan) (string, error) {
	sum := sha256.New()
	out := json.NewEncoder(sum)
	if err := out.Encode(p); err != nil {
		return "", fmt.Errorf("digest of plan: %w", err)
	}
	for host := range p.Hosts {
		b := on(p, host, &plan.Meeting{})
		for _, r := range p.RanksOf(host) {
			vars, err := b.of(r)
			if err != nil {
				return "", err
			}
			if err := out.Encode(vars); err != nil {
				return "", fmt.Errorf("digest of plan: %w", err)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Difference is something that is not the same everywhere.
type Difference struct {
	What   string   `json:"what"`   // a variable, or what hosts have
	Values []Shared `json:"values"` // the most common first
}

// Shared is a value and who has it.
type Shared struct {
	Value string `json:"value"`
	Who   string `json:"who"` // ranks as spans, or names of hosts
	n     int
}

// numbered are variables that differ from rank to rank because they must.
var numbered = []string{"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MUSTER_RANK", "MUSTER_LOCAL_RANK", "MUSTER_DEVICE",
	"JAX_LOCAL_DEVICE_IDS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}

// Diff finds what differs between ranks' environments, less what must, and between hosts.
func Diff(p *plan.Plan) (ranks, hosts []Difference, err error) {
	values := map[string]map[string][]int{}
	for host := range p.Hosts {
		b := on(p, host, &plan.Meeting{})
		for _, r := range p.RanksOf(host) {
			vars, err := b.of(r)
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
				values[v.Name][v.Shown()] = append(values[v.Name][v.Shown()], r.Rank)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		d := Difference{What: name}
		known := 0
		for value, by := range values[name] {
			d.Values = append(d.Values, Shared{Value: value, Who: "ranks " + text.Ranges(by), n: len(by)})
			known += len(by)
		}
		if known < p.WorldSize {
			d.Values = append(d.Values, Shared{Value: "(not set)", Who: "the others", n: p.WorldSize - known})
		}
		ranks = d.addTo(ranks)
	}
	return ranks, diffHosts(p), nil
}

// addTo adds a difference to others, if it is one.
func (d Difference) addTo(all []Difference) []Difference {
	if len(d.Values) < 2 {
		return all
	}
	slices.SortFunc(d.Values, func(a, b Shared) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.Value, b.Value))
	})
	return append(all, d)
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
	if f.Devices == nil || f.Devices.Inventory == nil || of(f.Devices) == nil {
		return ""
	}
	return *of(f.Devices)
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

func diffHosts(p *plan.Plan) []Difference {
	var found []Difference
	for _, thing := range hostThings {
		by := map[string][]string{}
		for i, f := range p.Facts {
			value := cmp.Or(thing.of(f), "none")
			by[value] = append(by[value], p.Hosts[i].Name)
		}
		d := Difference{What: thing.what}
		for value, names := range by {
			d.Values = append(d.Values, Shared{Value: value, Who: SomeNames(names), n: len(names)})
		}
		found = d.addTo(found)
	}
	return found
}

// maxNames is how many hosts are named in a sentence.
const maxNames = 4

// SomeNames lists hosts, and counts those that are too many.
func SomeNames(names []string) string {
	if n := len(names); n > maxNames {
		return fmt.Sprintf("%s and %s", strings.Join(names[:maxNames], ", "), plural.Of(n-maxNames, "more host"))
	}
	return strings.Join(names, ", ")
}
