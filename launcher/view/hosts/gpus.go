package hosts

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/plugins/gpu"
)

func bySource(d *facts.Devices) string {
	if d.Source == "" {
		return ""
	}
	return ", says " + d.Source
}

// gpuTable shows a line for each GPU. The CPUs near it are shown where they are not those
// of its node, which have a table of their own.
func gpuTable(w io.Writer, st *terminal.Stream, f facts.Host) {
	d := f.Devices
	line := fmt.Sprintf("driver %s, CUDA %s, by %s", or(d.Driver, "unknown"), or(d.CUDA, "unknown"), d.Source)
	if d.NVSwitches > 0 {
		switches := "1 NVSwitch"
		if d.NVSwitches > 1 {
			switches = fmt.Sprintf("%d NVSwitches", d.NVSwitches)
		}
		line = joined(line, switches, prefixed("fabric manager ", strings.TrimSpace(d.FabricManager.Version+" "+d.FabricManager.State)))
	}
	fmt.Fprintf(w, "  %s\n", line)
	rows := [][]string{{"GPU", "NAME", "MEMORY", "USED", "NODE", "CPUS", "PCIE", "NIC", "PCI", "UUID", "STATE"}}
	for i, g := range d.Inventory.GPUs {
		near := d.Near[i]
		nic := "-"
		if len(near.HCAs) > 0 {
			nic = shortList(near.HCAs) + " " + string(near.HCALink)
		}
		rows = append(rows, []string{strconv.Itoa(g.Index), terminal.OrDash(strings.TrimPrefix(g.Name, "NVIDIA ")), memoryWord(g.Memory.Total), memoryWord(g.Memory.Used),
			nodeWord(near.NUMA), nearCPUs(near, f.Nodes), pcieWord(g.PCIe), nic, terminal.OrDash(g.PCI),
			uuidWord(g, d.Inventory.GPUs), stateCell(st, g)})
	}
	terminal.WriteTable(w, rows)
}

func nearCPUs(near facts.Near, nodes []facts.Node) string {
	known := len(nodes) > 1 && slices.ContainsFunc(nodes, func(n facts.Node) bool {
		return near.NUMA != nil && *near.NUMA == n.ID && slices.Equal(near.CPUs, n.CPUs)
	})
	if known {
		return "-"
	}
	return cpusWord(near.CPUs)
}

// stateCell is the last of its row, so that colour does not move the columns.
func stateCell(st *terminal.Stream, g gpu.GPU) string {
	word := strings.ReplaceAll(g.State, "_", " ")
	if g.State == gpu.StateOK {
		return word
	}
	return st.Paint("31", word)
}

// pcieWord shows generation and width, now and at most where that differs.
func pcieWord(p gpu.PCIe) string {
	if p.Width == nil && p.Generation == nil {
		return "-"
	}
	return "gen" + ofMost(p.Generation, p.GenerationMax) + " x" + ofMost(p.Width, p.WidthMax)
}

func ofMost(now, highest *int) string {
	switch {
	case now == nil:
		return "?"
	case highest == nil || *highest == *now:
		return strconv.Itoa(*now)
	}
	return fmt.Sprintf("%d/%d", *now, *highest)
}

// uuidWord shortens a UUID as far as CUDA still knows it from the others, and to no less
// than eight digits.
func uuidWord(g gpu.GPU, all []gpu.GPU) string {
	const shortest = len("GPU-01234567")
	if g.UUID == "" {
		return "-"
	}
	for n := shortest; n < len(g.UUID); n++ {
		alike := slices.ContainsFunc(all, func(o gpu.GPU) bool {
			return o.UUID != g.UUID &&
				strings.HasPrefix(o.UUID, g.UUID[:n])
		})
		if !alike {
			return g.UUID[:n]
		}
	}
	return g.UUID
}

// migTable shows the parts of GPUs. Their UUIDs are whole: jobs name parts by them.
func migTable(w io.Writer, d *facts.Devices) {
	rows := [][]string{{"MIG", "PROFILE", "MEMORY", "USED", "UUID"}}
	for _, g := range d.Inventory.GPUs {
		for _, m := range g.MIG.Instances {
			rows = append(rows, []string{fmt.Sprintf("%d:%d", g.Index, m.Index), terminal.OrDash(m.Profile), memoryWord(m.Memory), memoryWord(m.Used), terminal.OrDash(m.UUID)})
		}
	}
	terminal.WriteTable(w, rows)
}

// linkMatrix shows the ways between GPUs, those within an island in one colour.
func linkMatrix(w io.Writer, st *terminal.Stream, d *facts.Devices) {
	if len(d.Inventory.GPUs) < 2 {
		return
	}
	const cell = 6
	head := fmt.Sprintf("  %*s", cell, "")
	for _, g := range d.Inventory.GPUs {
		head += fmt.Sprintf("%-*s", cell, fmt.Sprint("GPU", g.Index))
	}
	fmt.Fprintln(w, strings.TrimRight(head, " "))
	for i, row := range d.Links {
		fmt.Fprintf(w, "  %-*s", cell, fmt.Sprint("GPU", d.Inventory.GPUs[i].Index))
		for j, link := range row {
			text := fmt.Sprintf("%-*s", cell, linkWord(link))
			if j == len(row)-1 {
				text = linkWord(link)
			}
			if at := islandOf(d, i); at >= 0 && at == islandOf(d, j) && i != j {
				text = st.Paint(terminal.Colours[at%len(terminal.Colours)], text)
			}
			fmt.Fprint(w, text)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  %s\n", islandText(d))
}

func linkWord(l gpu.Link) string {
	if l == "" {
		return "?"
	}
	return string(l)
}

func islandOf(d *facts.Devices, card int) int {
	return slices.IndexFunc(d.Islands, func(island []int) bool {
		return len(island) > 1 &&
			slices.Contains(island, card)
	})
}

func islandText(d *facts.Devices) string {
	if d.Islands == nil {
		return "the ways between GPUs are not known"
	}
	var names []string
	for _, island := range d.Islands {
		if len(island) < 2 {
			continue
		}
		var gpus []int
		for _, i := range island {
			gpus = append(gpus, d.Inventory.GPUs[i].Index)
		}
		names = append(names, text.Numbered("GPU", gpus))
	}
	switch len(names) {
	case 0:
		return "no two GPUs are joined by NVLink"
	case 1:
		return "one island of NVLink: " + names[0]
	}
	return fmt.Sprintf("%d islands of NVLink, joined by slower ways: %s", len(names), strings.Join(names, "; "))
}
