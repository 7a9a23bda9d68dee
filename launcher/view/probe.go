package view

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/plugins"
)

// Probed is a host that was looked at.
type Probed struct {
	Name    string
	Address string // that it was reached by
	Facts   facts.Host
}

// Probe shows hosts as people read them: each a line, a table of GPUs, the links between
// them, and in words what stands out.
func Probe(s *Screen, hosts []Probed) {
	for i, h := range hosts {
		var b bytes.Buffer
		if i > 0 {
			b.WriteByte('\n')
		}
		probeHost(&b, &s.out, h)
		s.write(&s.out, b.Bytes())
	}
}

func probeHost(w *bytes.Buffer, st *stream, h Probed) {
	f := h.Facts
	fmt.Fprintf(w, "%s: %s, %s %s, %s, %s of memory\n", st.paint("1", h.Name), f.Hostname, f.OS, f.Kernel,
		cpuWords(f.CPUs), bytesWord(f.Memory))
	for _, nic := range f.NICs {
		if line := nicWords(nic); line != "" {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	d := f.Devices
	switch {
	case d == nil || d.None != "":
		fmt.Fprintf(w, "  GPUs: %s\n", noneWord(d))
	case len(d.GPUs.GPUs) == 0:
		fmt.Fprintln(w, "  GPUs: none")
	default:
		gpuTable(w, d)
		linkMatrix(w, st, d)
		for _, line := range standsOut(d) {
			fmt.Fprintf(w, "  %s %s\n", st.paint("33", "!"), line)
		}
	}
}

func noneWord(d *facts.Devices) string {
	if d == nil {
		return "not looked at"
	}
	return d.None
}

func cpuWords(c facts.CPUs) string {
	return fmt.Sprintf("%d CPUs on %s", len(c.Allowed), count(c.Physical, "core"))
}

func nicWords(n facts.NIC) string {
	if n.Loopback || !n.Up || len(n.Addresses) == 0 {
		return ""
	}
	words := fmt.Sprintf("%s %s, MTU %d", n.Name, strings.Join(n.Addresses, " "), n.MTU)
	if n.SpeedMbps > 0 {
		words += fmt.Sprintf(", %d Mbit/s", n.SpeedMbps)
	}
	if n.Virtual != "" {
		words += ", " + n.Virtual
	}
	return words
}

func bytesWord(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func gpuTable(w io.Writer, d *facts.Devices) {
	fmt.Fprintf(w, "  driver %s, CUDA %s, by %s\n", or(d.Driver, "unknown"), or(d.CUDA, "unknown"), d.Source)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  GPU\tNAME\tMEMORY\tUSED\tNUMA\tPCI\tUUID\tSTATE")
	for i, g := range d.GPUs.GPUs {
		numa := "-"
		if n := d.Near[i].NUMA; n != nil {
			numa = fmt.Sprint(*n)
		}
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Index, g.Name, memoryWord(g.Memory.Total), memoryWord(g.Memory.Used), numa, g.PCI, g.UUID, g.State)
	}
	_ = t.Flush() // into a buffer
}

func or(s *string, other string) string {
	if s == nil {
		return other
	}
	return *s
}

func memoryWord(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return bytesWord(*n)
}

// linkMatrix shows the ways between GPUs, those within an island in one colour.
func linkMatrix(w io.Writer, st *stream, d *facts.Devices) {
	if len(d.GPUs.GPUs) < 2 {
		return
	}
	const cell = 6
	fmt.Fprintf(w, "  %*s", cell, "")
	for _, g := range d.GPUs.GPUs {
		fmt.Fprintf(w, "%-*s", cell, fmt.Sprint("GPU", g.Index))
	}
	fmt.Fprintln(w)
	for i, row := range d.Links {
		fmt.Fprintf(w, "  %-*s", cell, fmt.Sprint("GPU", d.GPUs.GPUs[i].Index))
		for j, link := range row {
			text := fmt.Sprintf("%-*s", cell, linkWord(link))
			if at := islandOf(d, i); at >= 0 && at == islandOf(d, j) && i != j {
				text = st.paint(rankColours[at%len(rankColours)], text)
			}
			fmt.Fprint(w, text)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  %s\n", islandWords(d))
}

func linkWord(l plugins.Link) string {
	if l == "" {
		return "?"
	}
	return string(l)
}

func islandOf(d *facts.Devices, gpu int) int {
	return slices.IndexFunc(d.Islands, func(island []int) bool { return len(island) > 1 && slices.Contains(island, gpu) })
}

func islandWords(d *facts.Devices) string {
	var names []string
	for _, island := range d.Islands {
		if len(island) < 2 {
			continue
		}
		var gpus []int
		for _, i := range island {
			gpus = append(gpus, d.GPUs.GPUs[i].Index)
		}
		slices.Sort(gpus)
		names = append(names, "GPUs "+spans(gpus))
	}
	switch len(names) {
	case 0:
		return "no two GPUs are joined by NVLink"
	case 1:
		return "one island of NVLink: " + names[0]
	}
	return fmt.Sprintf("%d islands of NVLink, joined by slower ways: %s", len(names), strings.Join(names, "; "))
}

// standsOut says in words what somebody should know before a job is put here.
func standsOut(d *facts.Devices) []string {
	var lines []string
	add := func(g plugins.GPU, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("GPU %d ", g.Index)+fmt.Sprintf(format, args...))
	}
	for _, g := range d.GPUs.GPUs {
		switch g.State {
		case plugins.StateLost:
			add(g, "(%s) is lost: it has fallen off the bus; the machine needs a reboot", g.PCI)
			continue
		case plugins.StateNeedsReset:
			add(g, "needs a reset before it can be used")
		case plugins.StateUnknown:
			add(g, "does not answer properly")
		}
		gpuNews(g, add)
	}
	return append(lines, d.Notes...)
}

// busyMemory is what the driver itself may use of an idle GPU that has clients' traces.
const busyMemory = 1 << 30

func gpuNews(g plugins.GPU, add func(plugins.GPU, string, ...any)) {
	if g.Memory.Used != nil && *g.Memory.Used > busyMemory {
		add(g, "has %s in use%s", bytesWord(*g.Memory.Used), holders(g.Processes))
	}
	if g.ComputeMode != nil && *g.ComputeMode != "default" {
		add(g, "is in compute mode %s", strings.ReplaceAll(*g.ComputeMode, "_", " "))
	}
	if g.MIG.Enabled != nil && *g.MIG.Enabled {
		add(g, "is partitioned (MIG): %s", count(len(g.MIG.Instances), "device"))
	}
	if n := g.ECC.Volatile; n != nil && *n > 0 {
		add(g, "has had %d uncorrected memory errors since its driver was loaded", *n)
	}
	if p := g.Remapped.Pending; p != nil && *p {
		add(g, "has memory rows to be remapped at its next reset")
	}
	if f := g.Remapped.Failed; f != nil && *f {
		add(g, "could not remap bad memory rows: it needs replacement")
	}
	if g.Recovery != nil && *g.Recovery != "none" {
		add(g, "waits for a recovery action: %s", strings.ReplaceAll(*g.Recovery, "_", " "))
	}
	if len(g.Throttled) > 0 {
		add(g, "is slowed down: %s", strings.ReplaceAll(strings.Join(g.Throttled, ", "), "_", " "))
	}
	if down := inactive(g.NVLinks); down > 0 {
		add(g, "has %d of %d NVLinks down", down, len(g.NVLinks))
	}
}

func holders(processes []plugins.Process) string {
	if len(processes) == 0 {
		return " by nobody who shows (another container, or a leak)"
	}
	var names []string
	for _, p := range processes {
		names = append(names, fmt.Sprintf("%s (pid %d)", p.Name, p.PID))
	}
	return " by " + strings.Join(names, ", ")
}

func inactive(links []plugins.NVLink) int {
	n := 0
	for _, l := range links {
		if !l.Active {
			n++
		}
	}
	if n == len(links) {
		return 0 // no bridge is fitted
	}
	return n
}

type probeJSON struct {
	Version int             `json:"version"`
	Hosts   []probeHostJSON `json:"hosts"`
}

type probeHostJSON struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	facts.Host
	Devices *struct{}         `json:"devices,omitempty"` // spread out below
	Source  string            `json:"gpu_source,omitempty"`
	None    string            `json:"gpu_none,omitempty"`
	Driver  *string           `json:"driver"`
	CUDA    *string           `json:"cuda"`
	GPUs    []gpuJSON         `json:"gpus"`
	Links   [][]plugins.Link  `json:"links"`
	Islands [][]int           `json:"islands"`
	Why     map[string]string `json:"gpu_why,omitempty"`
	Notes   []string          `json:"gpu_notes,omitempty"`
}

// gpuJSON is a GPU with the figures that scripts want most at hand.
type gpuJSON struct {
	plugins.GPU
	MemoryTotal *uint64 `json:"memory_total"`
	MemoryUsed  *uint64 `json:"memory_used"`
	NUMA        *int    `json:"numa"`
	CPUs        []int   `json:"cpus"`
}

// ProbeJSON writes hosts as one JSON object (version 1).
func ProbeJSON(w io.Writer, hosts []Probed) error {
	out := probeJSON{Version: 1, Hosts: []probeHostJSON{}}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, hostJSON(h))
	}
	return writeJSON(w, out)
}

func hostJSON(h Probed) probeHostJSON {
	out := probeHostJSON{Name: h.Name, Address: h.Address, Host: h.Facts, GPUs: []gpuJSON{}, Links: [][]plugins.Link{}, Islands: [][]int{}}
	d := h.Facts.Devices
	if d == nil {
		return out
	}
	out.None = d.None
	if d.GPUs == nil {
		return out
	}
	out.Source, out.Driver, out.CUDA, out.Why, out.Notes = d.Source, d.Driver, d.CUDA, d.Why, d.Notes
	for i, g := range d.GPUs.GPUs {
		out.GPUs = append(out.GPUs, gpuJSON{GPU: g, MemoryTotal: g.Memory.Total, MemoryUsed: g.Memory.Used, NUMA: d.Near[i].NUMA, CPUs: d.Near[i].CPUs})
	}
	out.Links = append(out.Links, d.Links...)
	for _, island := range d.Islands {
		var gpus []int
		for _, i := range island {
			gpus = append(gpus, d.GPUs.GPUs[i].Index)
		}
		out.Islands = append(out.Islands, gpus)
	}
	return out
}
