package view

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// news is what somebody should know before a job is put on a host.
type news struct {
	text string
	bad  bool // a job will fail or suffer; otherwise it may be meant so
}

// standsOut says in words what is unusual about a host, the worst first.
func standsOut(h Probed) []news {
	var all []news
	if d := h.Facts.Devices; d != nil {
		all = append(all, deviceNews(d, h.Facts)...)
	}
	all = append(all, networkNews(h.Facts)...)
	all = append(all, limitNews(h.Facts)...)
	all = append(all, nodeNews(h.Facts)...)
	if line := clockWords(h); line != "" {
		all = append(all, news{text: line})
	}
	slices.SortStableFunc(all, func(a, b news) int {
		switch {
		case a.bad == b.bad:
			return 0
		case a.bad:
			return -1
		}
		return 1
	})
	return all
}

// deviceNews says the same thing of several GPUs once.
func deviceNews(d *facts.Devices, f facts.Host) []news {
	var all []news
	if n, ok := missing(d, f); ok {
		all = append(all, n)
	}
	if line := visibleWords(d, f); line != "" {
		all = append(all, news{text: line})
	}
	all = append(all, driverNews(d)...)
	if d.Inventory == nil {
		return all
	}
	gpus := map[news][]int{}
	var order []news
	for _, g := range d.Inventory.GPUs {
		for _, n := range gpuNews(g, d) {
			if gpus[n] == nil {
				order = append(order, n)
			}
			gpus[n] = append(gpus[n], g.Index)
		}
	}
	for _, n := range order {
		all = append(all, news{text.Numbered("GPU", gpus[n]) + ": " + n.text, n.bad})
	}
	for _, note := range d.Notes {
		all = append(all, news{text: note})
	}
	return all
}

// driverNews is about what has to fit together: CUDA starts on machines with NVSwitches only
// once the fabric manager has set them up, which has to be of the driver's version, as the
// kernel's module has.
func driverNews(d *facts.Devices) []news {
	var all []news
	m, driver := d.FabricManager, ""
	if d.Inventory != nil {
		driver = or(d.Driver, "")
	}
	switch {
	case d.NVSwitches == 0:
	case m.State != "" && m.State != nvidia.Active:
		all = append(all, news{fmt.Sprintf("nvidia-fabricmanager is %s, and there are %s: CUDA does not start (error 802)", m.State, nvSwitches(d)), true})
	case m.Version != "" && driver != "" && m.Version != driver:
		all = append(all, news{text: fmt.Sprintf("nvidia-fabricmanager is of version %s, the driver of %s", m.Version, driver)})
	}
	if d.KernelModule != "" && driver != "" && d.KernelModule != driver {
		all = append(all, news{fmt.Sprintf("NVIDIA's kernel module is of version %s, its libraries of %s: a reboot is due", d.KernelModule, driver), true})
	}
	return all
}

func nvSwitches(d *facts.Devices) string {
	if d.NVSwitches == 1 {
		return "1 NVSwitch"
	}
	return fmt.Sprintf("%d NVSwitches", d.NVSwitches)
}

// missing are GPUs that are on the bus and that the driver does not show. A container or a
// scheduler may have given a part of the machine; a site's own plugin is about others.
func missing(d *facts.Devices, f facts.Host) (news, bool) {
	if d.Inventory == nil && d.PCIDevices > 0 {
		return news{fmt.Sprintf("%s on the PCI bus, but nothing answers there", plural.Of(d.PCIDevices, "NVIDIA GPU")), true}, true
	}
	if d.Inventory == nil || d.Visibility.Variable != "" || d.PCIDevices <= len(d.Inventory.GPUs) {
		return news{}, false
	}
	given := ""
	switch {
	case f.Container != "":
		given = "this container"
	case f.Environ["SLURM_JOB_ID"] != "":
		given = "this Slurm job"
	}
	if given != "" {
		return news{text: fmt.Sprintf("%s has been given %d of the machine's %d GPUs", given, len(d.Inventory.GPUs), d.PCIDevices)}, true
	}
	return news{fmt.Sprintf("the driver shows %s, but %d are on the PCI bus: the others did not start or were lost (dmesg says more)",
		plural.Of(len(d.Inventory.GPUs), "GPU"), d.PCIDevices), true}, true
}

// visibleWords tell of a variable on the host that limits which devices may be used.
func visibleWords(d *facts.Devices, f facts.Host) string {
	name := "CUDA_VISIBLE_DEVICES"
	if d.Inventory != nil && d.Visibility.Variable != "" {
		name = d.Visibility.Variable
	}
	value, set := f.Environ[name]
	switch {
	case !set:
		return ""
	case value == "":
		return name + " is set to nothing on this host: no GPU is to be used"
	}
	return fmt.Sprintf("%s=%s is set on this host: only these are to be used, in this order", name, value)
}

func networkNews(f facts.Host) []news {
	var all []news
	down := map[string][]string{}
	for _, h := range f.HCAs {
		// An Ethernet port that is down is often one that nobody uses.
		if h.State != "active" && h.LinkLayer == "InfiniBand" {
			down[downWords(h)] = append(down[downWords(h)], portName(h, f.HCAs))
		}
	}
	for _, words := range slices.Sorted(maps.Keys(down)) {
		all = append(all, news{fmt.Sprintf("%s: the link is %s", strings.Join(down[words], ", "), words), true})
	}
	for _, line := range slowPorts(f) {
		all = append(all, news{line, true})
	}
	if gpu.IsFalse(f.Verbs) && anyActive(f.HCAs) {
		all = append(all, news{"/dev/infiniband/uverbs* are not there: NCCL goes by slow sockets instead of InfiniBand", true})
	}
	if gpu.IsFalse(f.PeerMemory) && anyActive(f.HCAs) {
		all = append(all, news{text: "InfiniBand cannot reach GPU memory by itself (no nvidia_peermem, no dma-buf): data goes through the host's memory"})
	}
	if memlock := f.Limits.Memlock.Hard; memlock != nil && *memlock < f.Memory && anyActive(f.HCAs) {
		all = append(all, news{fmt.Sprintf("processes may lock %s of memory (ulimit -l): InfiniBand needs it unlimited", text.Bytes(*memlock)), true})
	}
	return all
}

func downWords(h facts.HCA) string {
	switch h.State {
	case "init":
		return "init: it waits for the subnet manager"
	case "armed":
		return "armed: the subnet manager has not finished"
	}
	switch h.PhysState {
	case "polling":
		return h.State + ", polling: no cable, or nothing at its other end"
	case "", "linkup":
		return h.State
	}
	return h.State + ", " + h.PhysState
}

func anyActive(hcas []facts.HCA) bool {
	return slices.ContainsFunc(hcas, func(h facts.HCA) bool { return h.State == "active" })
}

// slowPorts are slower than their sisters: the other ports of the same kind that are as
// near to a GPU. Storage and management have ports of their own speed.
func slowPorts(f facts.Host) []string {
	var sisters []facts.HCA
	for _, h := range f.HCAs {
		if h.State == "active" && besideGPU(h.Name, f.Devices) {
			sisters = append(sisters, h)
		}
	}
	var lines []string
	for _, h := range sisters {
		best := h.SpeedGbps
		for _, o := range sisters {
			if o.LinkLayer == h.LinkLayer {
				best = max(best, o.SpeedGbps)
			}
		}
		if h.SpeedGbps > 0 && h.SpeedGbps < best {
			lines = append(lines, fmt.Sprintf("%s: runs at %d Gb/s, its sisters at %d", portName(h, f.HCAs), h.SpeedGbps, best))
		}
	}
	return lines
}

// besideGPU reports whether a GPU has the adapter behind a switch of its own.
func besideGPU(hca string, d *facts.Devices) bool {
	return d != nil && slices.ContainsFunc(d.Near, func(n facts.Near) bool {
		return (n.HCALink == "PIX" || n.HCALink == "PXB") && slices.Contains(n.HCAs, hca)
	})
}

// What less of is worth a word: NCCL and data loaders share memory by /dev/shm, each
// rank opens files and connections by the hundred and starts threads by the dozen.
const (
	fewShared = 1 << 30
	fewFiles  = 4096
	fewPIDs   = 4096
	fewDisk   = 1 << 30
	fewInodes = 1000
)

func limitNews(f facts.Host) []news {
	var all []news
	add := func(format string, args ...any) { all = append(all, news{text: fmt.Sprintf(format, args...)}) }
	switch s := f.SharedMemory; {
	case s.Path == "":
	case s.Total == 0:
		add("there is no /dev/shm: NCCL and data loaders share memory by it")
	case s.Total < fewShared:
		add("/dev/shm has only %s, for NCCL and data loaders (docker: --shm-size or --ipc=host)", text.Bytes(s.Total))
	case s.Free < fewShared:
		add("/dev/shm is nearly full: %s of %s are free", text.Bytes(s.Free), text.Bytes(s.Total))
	}
	for _, s := range f.Spaces {
		if line := spaceWords(s); line != "" && s.Path != f.SharedMemory.Path {
			add("%s", line)
		}
	}
	if n := f.Limits.NoFile.Hard; n != nil && *n < fewFiles {
		add("a process may open only %d files (ulimit -n)", *n)
	}
	if n := f.Cgroup.PIDs; n != nil && *n < fewPIDs {
		add("only %d processes and threads may run (pids.max of the cgroup)", *n)
	}
	return all
}

// spaceWords tell of a file system without room. One for temporary files that is small by
// design has some.
func spaceWords(s facts.Space) string {
	name := fmt.Sprintf("%s (%s)", s.Path, strings.Join(s.Uses, ", "))
	switch {
	case s.ReadOnly:
		return name + " is read-only"
	case s.Inodes > 0 && s.InodesFree < fewInodes:
		return fmt.Sprintf("the file system of %s can take only %s", name, plural.Of(int(s.InodesFree), "more file"))
	case s.Total > 0 && s.Free < fewDisk && (s.Free <= s.Total/2 || slices.Contains(s.Uses, facts.UseHome) || slices.Contains(s.Uses, facts.UseLogs)):
		return fmt.Sprintf("the file system of %s is nearly full: %s of %s are free", name, text.Bytes(s.Free), text.Bytes(s.Total))
	}
	return ""
}

// nodeNews tells of GPUs whose own CPUs may not be used.
func nodeNews(f facts.Host) []news {
	var all []news
	for _, n := range f.Nodes {
		if gpus := gpusAt(f.Devices, n.ID); len(n.CPUs) == 0 && len(gpus) > 0 {
			all = append(all, news{text: fmt.Sprintf("no CPU of node %d may be used here: %s work across sockets", n.ID, text.Numbered("GPU", gpus))})
		}
	}
	return all
}

// clockWords tell of a clock by which logs of hosts cannot be compared.
func clockWords(h Probed) string {
	const apart = 1.0 // second
	if h.ClockOffset == nil || math.Abs(*h.ClockOffset)-h.ClockError < apart {
		return ""
	}
	way := "ahead of"
	if *h.ClockOffset < 0 {
		way = "behind"
	}
	return fmt.Sprintf("its clock is %.1f s %s this machine's", math.Abs(*h.ClockOffset), way)
}

func number(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

func some[T int | uint64](n *T) bool { return n != nil && *n > 0 }

// gpuNews is what is unusual about one GPU.
func gpuNews(g gpu.GPU, d *facts.Devices) []news {
	var all []news
	bad := func(is bool, format string, args ...any) {
		if is {
			all = append(all, news{fmt.Sprintf(format, args...), true})
		}
	}
	switch g.State {
	case gpu.StateLost:
		bad(true, "lost, fallen off the bus (%s): the machine needs a reboot", g.PCI)
		return all
	case gpu.StateNeedsReset:
		bad(true, "of no use before a reset")
	case gpu.StateUnknown:
		bad(true, "no proper answer")
	}
	bad(some(g.ECC.Volatile) || some(g.ECC.SRAMVolatile), "uncorrected memory errors since the driver was loaded")
	bad(gpu.IsTrue(g.Remapped.Failed), "bad memory rows could not be remapped: to be replaced")
	bad(gpu.IsTrue(g.Remapped.Pending), "memory rows are to be remapped at the next reset")
	bad(gpu.IsTrue(g.Retired.Pending), "memory pages are to be retired at the next reset")
	bad(g.Recovery != nil && *g.Recovery != "none", "the driver asks for a recovery action: %s", gpu.Spaced(or(g.Recovery, "")))
	bad(g.Fabric != nil && *g.Fabric != "completed", "the NVSwitch fabric is not ready: %s", fabricWords(or(g.Fabric, "")))
	bad(narrow(g.PCIe), "PCIe link x%s of x%s: badly seated, or a bad riser", number(g.PCIe.Width), number(g.PCIe.WidthMax))
	down := inactive(g.NVLinks)
	bad(down > 0, "%d of %d NVLinks are down", down, len(g.NVLinks))
	return append(all, useNews(g, d)...)
}

func narrow(p gpu.PCIe) bool {
	return p.Width != nil && p.WidthMax != nil && *p.Width < *p.WidthMax
}

func fabricWords(state string) string {
	switch state {
	case "not_started":
		return "nvidia-fabricmanager does not run"
	case "in_progress":
		return "it is still being set up"
	}
	return gpu.Spaced(state)
}

// inactive counts links that are down where others are up; without any no bridge is
// fitted.
func inactive(links []gpu.NVLink) int {
	n := 0
	for _, l := range links {
		if !l.Active {
			n++
		}
	}
	if n == len(links) {
		return 0
	}
	return n
}
