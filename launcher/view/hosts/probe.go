package hosts

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/view/findings"
	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// Probed is a host that was looked at.
type Probed struct {
	Name    string
	Address string // that it was reached by
	Facts   facts.Host
	// ClockOffset is how far the host's clock is ahead of the launcher's, in seconds; nil:
	// not measured. ClockError is how far off that may be: half the time that asking took.
	ClockOffset *float64
	ClockError  float64
	// Findings are what stands out of it, the worst first.
	Findings []report.Finding
}

// Probe shows hosts as people read them: what each is, tables of its network and its
// GPUs, the links between them, and in words what stands out.
func Probe(s *terminal.Screen, hosts []Probed) {
	for i, h := range hosts {
		var b bytes.Buffer
		if i > 0 {
			b.WriteByte('\n')
		}
		probeHost(&b, &s.Out, h)
		s.Write(&s.Out, terminal.CleanLines(b.Bytes()))
	}
}

func probeHost(w *bytes.Buffer, st *terminal.Stream, h Probed) {
	probeHeader(w, st, h)
	nodeTable(w, h.Facts)
	nicTable(w, h.Facts)
	hcaTable(w, h.Facts)
	d := h.Facts.Devices
	switch {
	case d == nil:
		fmt.Fprintln(w, "  GPUs: not looked at")
	case d.Inventory == nil:
		fmt.Fprintf(w, "  GPUs: %s\n", d.None)
	case len(d.Inventory.GPUs) == 0:
		fmt.Fprintf(w, "  GPUs: none%s\n", bySource(d))
	default:
		gpuTable(w, st, h.Facts)
		migTable(w, d)
		linkMatrix(w, st, d)
	}
	for _, kind := range findings.Severities {
		for _, f := range findings.Alike(h.Findings, kind.Severity) {
			f.Text, _, _ = strings.Cut(f.Text, "\n")
			if len(f.GPUs) > 0 {
				f.Text = text.Numbered("GPU", f.GPUs) + ": " + f.Text
			}
			fmt.Fprintf(w, "  %s %s\n", st.Paint(kind.Colour, "!"), f.Text)
		}
	}
	if len(h.Findings) == 0 && d != nil {
		fmt.Fprintln(w, "  nothing stands out")
	}
}

// probeHeader says in two lines what a host is and what may be used of it.
func probeHeader(w io.Writer, st *terminal.Stream, h Probed) {
	f := h.Facts
	name := st.Paint("1", h.Name)
	if h.Address != "" && h.Address != h.Name {
		name += " (" + h.Address + ")"
	}
	fmt.Fprintf(w, "%s: %s\n", name, joined(f.Hostname, f.OS+" "+f.Kernel+" "+f.Arch, prefixed("user ", f.User)))
	memory := text.Bytes(f.Memory) + " of memory"
	if f.MemoryAvailable > 0 {
		memory = fmt.Sprintf("%s of memory (%s available)", text.Bytes(f.Memory), text.Bytes(f.MemoryAvailable))
	} else if free := freeMemory(f.Nodes); free > 0 {
		memory = fmt.Sprintf("%s of memory (%s free)", text.Bytes(f.Memory), text.Bytes(free))
	}
	shm := ""
	if f.SharedMemory.Total > 0 {
		shm = "/dev/shm " + text.Bytes(f.SharedMemory.Total)
	}
	fmt.Fprintf(w, "  %s\n", joined(cpuText(f.CPUs), memory, shm))
	if words := confinement(f); words != "" {
		fmt.Fprintf(w, "  %s\n", words)
	}
	if words := softwareText(f.Software); words != "" {
		fmt.Fprintf(w, "  %s\n", words)
	}
}

func softwareText(s *facts.Software) string {
	if s == nil {
		return ""
	}
	python := s.Python
	if s.Version != "" {
		python += " (" + s.Version + ")"
	}
	words := joined(prefixed("python ", python), prefixed("torch ", s.Torch), prefixed("NCCL ", s.NCCL))
	switch {
	case s.Why == "":
		return words
	case words == "":
		return "python is not known: " + s.Why
	}
	return words + " (" + s.Why + ")"
}

func freeMemory(nodes []facts.Node) uint64 {
	var free uint64
	for _, n := range nodes {
		free += n.Free
	}
	return free
}

// joined leaves out what is empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return strings.TrimSpace(p) == "" }), ", ")
}

func prefixed(prefix, word string) string {
	if word == "" {
		return ""
	}
	return prefix + word
}

// confinement says what container this is, and which of its cgroup's limits are tighter
// than the machine.
func confinement(f facts.Host) string {
	var limits []string
	if c := f.Cgroup.CPUs; c != nil && *c < float64(len(f.CPUs.Allowed)) {
		limits = append(limits, fmt.Sprintf("%.3g CPUs' worth of time", *c))
	}
	if m := f.Cgroup.Memory; m != nil && *m < f.Memory {
		limits = append(limits, text.Bytes(*m)+" of memory")
	}
	return joined(prefixed("in a container: ", f.Container), prefixed("in Slurm job ", f.Environ["SLURM_JOB_ID"]),
		prefixed("cgroup limits: ", strings.Join(limits, " and ")))
}

func cpuText(c facts.CPUs) string {
	if len(c.Allowed) == 0 {
		return ""
	}
	return fmt.Sprintf("%s on %s", plural.Of(len(c.Allowed), "CPU"), plural.Of(c.Physical, "core"))
}

func memoryWord(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return text.Bytes(*n)
}

func or(s *string, other string) string {
	if s == nil {
		return other
	}
	return *s
}
