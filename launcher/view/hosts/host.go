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

// nodeTable shows NUMA nodes where there are several, with what sits at each.
func nodeTable(w io.Writer, f facts.Host) {
	if len(f.Nodes) < 2 {
		return
	}
	rows := [][]string{{"NODE", "CPUS", "MEMORY", "FREE", "GPUS", "NETWORK"}}
	for _, n := range f.Nodes {
		rows = append(rows, []string{strconv.Itoa(n.ID), cpusWord(n.CPUs), text.Bytes(n.Memory), text.Bytes(n.Free),
			terminal.OrDash(text.Ranges(gpusAt(f.Devices, n.ID))), terminal.OrDash(strings.Join(networkAt(f, n.ID), " "))})
	}
	terminal.WriteTable(w, rows)
}

// cpusWord lists CPUs, and counts them where the list is long.
func cpusWord(cpus []int) string {
	const longest = 24
	if len(cpus) == 0 {
		return "-"
	}
	if list := text.Ranges(cpus); len(list) <= longest {
		return list
	}
	return fmt.Sprintf("%d of them", len(cpus))
}

func nodeWord(node *int) string {
	if node == nil {
		return "-"
	}
	return strconv.Itoa(*node)
}

func gpusAt(d *facts.Devices, node int) []int {
	if d == nil || d.Inventory == nil {
		return nil
	}
	var gpus []int
	for i, g := range d.Inventory.GPUs {
		if n := d.Near[i].NUMA; n != nil && *n == node {
			gpus = append(gpus, g.Index)
		}
	}
	return gpus
}

func networkAt(f facts.Host, node int) []string {
	var names []string
	for _, n := range f.NICs {
		if n.NUMA != nil && *n.NUMA == node && !slices.ContainsFunc(f.HCAs,
			func(h facts.HCA) bool { return h.Interface == n.Name }) {
			names = append(names, n.Name)
		}
	}
	var adapters []string
	for _, h := range f.HCAs {
		if h.NUMA != nil && *h.NUMA == node && !slices.Contains(adapters, h.Name) {
			adapters = append(adapters, h.Name)
		}
	}
	if len(adapters) > 0 {
		names = append(names, shortList(adapters))
	}
	return names
}

// shortList writes names that differ in their number alone as one: mlx5_0-3,8.
func shortList(names []string) string {
	prefix := ""
	var numbers []int
	for i, name := range names {
		rest := strings.TrimRight(name, "0123456789")
		n, err := strconv.Atoi(name[len(rest):])
		if err != nil || i > 0 && rest != prefix {
			return strings.Join(names, ",")
		}
		prefix, numbers = rest, append(numbers, n)
	}
	slices.Sort(numbers)
	return prefix + text.Ranges(numbers)
}

// nicTable shows the interfaces that have an address or stand for hardware.
func nicTable(w io.Writer, f facts.Host) {
	rows := [][]string{{"INTERFACE", "LINK", "SPEED", "MTU", "NODE", "ADDRESSES"}}
	for _, n := range f.NICs {
		if n.Loopback || len(n.Addresses) == 0 && n.PCI == "" {
			continue
		}
		rows = append(rows, []string{n.Name, linkState(n), speedWord(n.SpeedMbps), strconv.Itoa(n.MTU),
			nodeWord(n.NUMA), addressText(n)})
	}
	terminal.WriteTable(w, rows)
}

func linkState(n facts.NIC) string {
	if n.Up {
		return "up"
	}
	if n.State == "up" || n.State == "unknown" || n.State == "" {
		return "down"
	}
	return n.State
}

func speedWord(mbps int) string {
	switch {
	case mbps == 0:
		return "-"
	case mbps < 1000:
		return fmt.Sprintf("%d Mb/s", mbps)
	}
	return fmt.Sprintf("%.4g Gb/s", float64(mbps)/1000)
}

func addressText(n facts.NIC) string {
	const shown = 3
	addresses := n.Addresses
	if len(addresses) > shown {
		addresses = append(slices.Clone(addresses[:shown]), fmt.Sprintf("and %d more", len(n.Addresses)-shown))
	}
	words := strings.Join(addresses, " ")
	if n.Virtual != "" {
		words += " (" + n.Virtual + ")"
	}
	return terminal.OrDash(strings.TrimSpace(words))
}

// hcaTable shows InfiniBand and RoCE ports, and which GPUs have them for the nearest.
func hcaTable(w io.Writer, f facts.Host) {
	rows := [][]string{{"HCA", "LINK", "RATE", "LAYER", "INTERFACE", "NODE", "PCI", "NEAREST TO"}}
	for _, h := range f.HCAs {
		rate := "-"
		if h.SpeedGbps > 0 && h.State == "active" {
			rate = fmt.Sprintf("%d Gb/s", h.SpeedGbps)
		}
		rows = append(rows, []string{portName(h, f.HCAs), terminal.OrDash(h.State), rate,
			terminal.OrDash(h.LinkLayer), terminal.OrDash(h.Interface),
			nodeWord(h.NUMA), terminal.OrDash(h.PCI), terminal.OrDash(nearestTo(h.Name, f.Devices))})
	}
	terminal.WriteTable(w, rows)
}

// portName is the device's name, with the port where it has several.
func portName(h facts.HCA, all []facts.HCA) string {
	if slices.ContainsFunc(all, func(o facts.HCA) bool { return o.Name == h.Name && o.Port != h.Port }) {
		return fmt.Sprintf("%s:%d", h.Name, h.Port)
	}
	return h.Name
}

// nearestTo lists the GPUs that have a device among their nearest, by the way.
func nearestTo(hca string, d *facts.Devices) string {
	if d == nil || d.Inventory == nil {
		return ""
	}
	by := map[gpu.Link][]int{}
	for i, near := range d.Near {
		if slices.Contains(near.HCAs, hca) {
			by[near.HCALink] = append(by[near.HCALink], d.Inventory.GPUs[i].Index)
		}
	}
	var words []string
	for _, link := range []gpu.Link{"PIX", "PXB", "PHB", "NODE", "SYS"} {
		if gpus := by[link]; len(gpus) > 0 {
			words = append(words, fmt.Sprintf("%s (%s)", text.Numbered("GPU", gpus), link))
		}
	}
	return strings.Join(words, ", ")
}
