package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// useNews is about who has a GPU, and how it is set.
func useNews(g gpu.GPU, d *facts.Devices) []news {
	var all []news
	add := func(format string, args ...any) { all = append(all, news{text: fmt.Sprintf(format, args...)}) }
	if words := gpu.SlowWords(g.Throttled); words != "" {
		add("slowed down: %s", words)
	}
	if run := d.Taken[g.UUID]; run != "" {
		add("held by muster's run %s", run)
	}
	if words := busyWords(g, d.Owners); words != "" {
		add("%s", words)
	}
	switch mode := or(g.ComputeMode, "default"); mode {
	case "default":
	case "exclusive_process":
		add("one process at a time (compute mode exclusive process)")
	case "prohibited":
		all = append(all, news{"no CUDA process is let in (compute mode prohibited)", true})
	default:
		add("compute mode %s", gpu.Spaced(mode))
	}
	if gpu.IsTrue(g.MIG.Enabled) {
		all = append(all, news{migWords(g), g.MIG.Instances != nil && len(g.MIG.Instances) == 0})
	}
	if g.MIG.Pending != nil && g.MIG.Enabled != nil && *g.MIG.Pending != *g.MIG.Enabled {
		add("MIG is switched %s at the next reset", map[bool]string{true: "on", false: "off"}[*g.MIG.Pending])
	}
	return all
}

// migWords say into what a GPU is partitioned.
func migWords(g gpu.GPU) string {
	var profiles []string
	counts := map[string]int{}
	for _, m := range g.MIG.Instances {
		if counts[m.Profile]++; counts[m.Profile] == 1 {
			profiles = append(profiles, m.Profile)
		}
	}
	var words []string
	for _, profile := range profiles {
		words = append(words, fmt.Sprintf("%d of %s", counts[profile], cmp.Or(profile, "a profile that is not told")))
	}
	switch {
	case g.MIG.Instances == nil:
		return "partitioned (MIG), and into what is not told"
	case len(words) == 0:
		return fmt.Sprintf("partitioned (MIG), and it has no devices: nobody can use it; nvidia-smi mig -i %d -lgip lists the profiles that fit, and root makes devices with nvidia-smi mig -i %d -cgi PROFILE,... -C", g.Index, g.Index)
	}
	return fmt.Sprintf("partitioned (MIG) into %s: %s", plural.Of(len(g.MIG.Instances), "device"), strings.Join(words, ", "))
}

// busyMemory is what the driver itself may use of an idle GPU.
const busyMemory = 1 << 30

// busyWords say what is in use and by whom, also what no process explains.
func busyWords(g gpu.GPU, owners map[int]string) string {
	var names []string
	var explained uint64
	told, computes := true, false
	for _, p := range g.Processes {
		names = append(names, holderWords(p, owners))
		computes = computes || p.Kind != "graphics"
		if p.Memory == nil {
			told = false
			continue
		}
		explained += *p.Memory
	}
	const shown = 4
	if len(names) > shown {
		names = append(names[:shown], fmt.Sprintf("%d more", len(names)-shown))
	}
	used := g.Memory.Used
	switch {
	case used == nil && computes:
		return "in use: " + strings.Join(names, ", ")
	case used == nil || *used <= busyMemory && !computes:
		return ""
	case len(names) == 0:
		return fmt.Sprintf("%s in use by no process that shows: another container's, another user's, or a leak", text.Bytes(*used))
	}
	words := fmt.Sprintf("%s in use: %s", text.Bytes(*used), strings.Join(names, ", "))
	if told && *used > explained+busyMemory {
		words += fmt.Sprintf(", and %s by no process that shows", text.Bytes(*used-explained))
	}
	return words
}

// holderWords name a process: python (pid 4242, ann, 14.2 GiB).
func holderWords(p gpu.Process, owners map[int]string) string {
	what := fmt.Sprintf("pid %d", p.PID)
	if owner := owners[p.PID]; owner != "" {
		what += ", " + owner
	}
	if p.Memory != nil {
		what += ", " + text.Bytes(*p.Memory)
	}
	return programWord(p.Name) + " (" + what + ")"
}

// programWord is a program's name without its folder and arguments.
func programWord(name string) string {
	name, _, _ = strings.Cut(name, " ")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if name == "" || strings.HasPrefix(name, "[") { // [Not Found]: another container's
		return "a process"
	}
	return name
}
