package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// comparison is what came of comparing two looks at the same GPUs.
type comparison struct {
	equal int      // values
	wrong []string // what cannot differ and does
	moved []string // what may have changed between the looks, or is told in another way
	alone []string // what one of them alone tells
}

// Sizes may be rounded to MiB in any way. What is in use may change between two looks, but
// not by so much on GPUs that nobody starts anything on.
const (
	mebibyte = 1 << 20
	drift    = 1 << 30
)

// moving are values that change by themselves: idle cards lower the link to save power,
// processes come and go.
func moving(name string) bool {
	switch name {
	case "pcie.generation", "pcie.width", "processes", "throttled":
		return true
	}
	return false
}

// compare compares what two looks tell of the machine and of each GPU. one and other are
// their names.
func compare(one, other string, a, b *gpu.Inventory) comparison {
	var c comparison
	if len(a.GPUs) != len(b.GPUs) {
		c.wrong = append(c.wrong, fmt.Sprintf("%d GPUs by %s, %d by %s", len(a.GPUs), one, len(b.GPUs), other))
		return c
	}
	c.values("", one, other, values(machineOf(a)), values(machineOf(b)))
	for i := range a.GPUs {
		x, y := values(a.GPUs[i]), values(b.GPUs[i])
		if allInactive(a.GPUs[i].NVLinks) && allInactive(b.GPUs[i].NVLinks) { // nvidia-smi does not count these
			delete(x, "nvlinks")
			delete(y, "nvlinks")
		}
		c.values(fmt.Sprintf("GPU %d: ", i), one, other, x, y)
	}
	return c
}

// machineOf is what is not of one GPU.
func machineOf(g *gpu.Inventory) any {
	return struct {
		Driver *string      `json:"driver"`
		CUDA   *string      `json:"cuda"`
		Links  [][]gpu.Link `json:"links"`
	}{g.Driver, g.CUDA, g.Links}
}

func allInactive(links []gpu.NVLink) bool {
	return links != nil && !slices.ContainsFunc(links, func(l gpu.NVLink) bool { return l.Active })
}

// values is a value as JSON has it, spread out: "memory.total" and the like. Lists of
// lists and of MIG devices are spread out too; other lists are one value each. What is
// not told, null or an empty text, is left out.
func values(v any) map[string]any {
	text, err := json.Marshal(v)
	if err != nil {
		panic("plain structs make JSON: " + err.Error())
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		panic("that JSON is read again: " + err.Error())
	}
	found := map[string]any{}
	spread("", tree, found)
	return found
}

func spread(name string, v any, into map[string]any) {
	switch v := v.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case map[string]any:
		for field, value := range v {
			if field != "why" {
				spread(strings.TrimPrefix(name+"."+field, "."), value, into)
			}
		}
		return
	case []any:
		if name == "mig.instances" || strings.HasPrefix(name, "links") {
			for i, element := range v {
				spread(fmt.Sprintf("%s.%d", name, i), element, into)
			}
			return
		}
	}
	into[name] = v
}

// values compares values of the same names.
func (c *comparison) values(what, one, other string, a, b map[string]any) {
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, hasX := a[name]
		y, hasY := b[name]
		switch {
		case !hasX:
			c.alone = append(c.alone, fmt.Sprintf("%s%s: by %s only", what, name, other))
		case !hasY:
			c.alone = append(c.alone, fmt.Sprintf("%s%s: by %s only", what, name, one))
		case fmt.Sprint(x) == fmt.Sprint(y):
			c.equal++
		default:
			c.differ(name, fmt.Sprintf("%s%s: %s by %s, %s by %s", what, name, show(x), one, show(y), other), x, y)
		}
	}
}

// differ judges a difference.
func (c *comparison) differ(name, text string, x, y any) {
	m, isNumber := x.(float64)
	n, isToo := y.(float64)
	apart := math.Inf(1)
	if isNumber && isToo {
		apart = math.Abs(m - n)
	}
	switch last := name[strings.LastIndexByte(name, '.')+1:]; {
	case isSize(name) && apart < mebibyte:
		c.equal++
	case isSize(name) && last == "used" && apart < drift, moving(name):
		c.moved = append(c.moved, text)
	default:
		c.wrong = append(c.wrong, text)
	}
}

// isSize: memory of the GPU or of a MIG device.
func isSize(name string) bool {
	return strings.HasPrefix(name, "memory.") || strings.HasPrefix(name, "mig.instances.") &&
		(strings.HasSuffix(name, ".memory") || strings.HasSuffix(name, ".used"))
}

// show is a value in short.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 120 {
		return string(text[:120]) + "…"
	}
	return string(text)
}

// unexplained lists the values without a reason.
func unexplained(g *gpu.Inventory) []string {
	var all []string
	missing := func(what string, names []string, why map[string]string) {
		for _, name := range names {
			if why[name] == "" {
				all = append(all, fmt.Sprintf("%s: %s%s", g.Source, what, name))
			}
		}
	}
	missing("", g.Unknown(), g.Why)
	for i := range g.GPUs {
		missing(fmt.Sprintf("GPU %d: ", i), g.GPUs[i].Unknown(), g.GPUs[i].Why)
	}
	return all
}

// compareRows compares a look with nvidia-smi's table.
func compareRows(source string, g *gpu.Inventory, rows []row) comparison {
	var c comparison
	if len(g.GPUs) != len(rows) {
		c.wrong = append(c.wrong, fmt.Sprintf("%d GPUs by %s, %d in the table", len(g.GPUs), source, len(rows)))
		return c
	}
	for i, r := range rows {
		c.values(fmt.Sprintf("GPU %d: ", i), source, "the table", rowValues(g, i), r.values())
	}
	return c
}

// rowValues are the values of a GPU that the table has too.
func rowValues(g *gpu.Inventory, i int) map[string]any {
	all := values(g.GPUs[i])
	maps.DeleteFunc(all, func(name string, _ any) bool {
		return !slices.Contains([]string{"index", "uuid", "pci", "name", "memory.total", "memory.used", "compute_mode", "mig.enabled"}, name)
	})
	if g.Driver != nil {
		all["driver"] = *g.Driver
	}
	return all
}

// values are those of a row under the names of gpu.GPU. What nvidia-smi does not tell
// stands in brackets, and is left out.
func (r row) values() map[string]any {
	found := map[string]any{"index": r.Index, "uuid": r.UUID, "pci": r.sysfs(), "name": r.Name, "driver": r.Driver}
	if r.Total >= 0 {
		found["memory.total"] = float64(r.Total) * mebibyte
	}
	if r.Used >= 0 {
		found["memory.used"] = float64(r.Used) * mebibyte
	}
	if !strings.HasPrefix(r.Mode, "[") {
		found["compute_mode"] = r.Mode
	}
	if !strings.HasPrefix(r.MIG, "[") && r.MIG != "N/A" {
		found["mig.enabled"] = r.partitioned()
	}
	return found
}
