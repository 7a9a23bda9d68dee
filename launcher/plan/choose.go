package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// chooser chooses the devices of one host.
type chooser struct {
	job     *config.Job
	host    config.Host
	facts   facts.Host
	devices *facts.Devices // nil where nothing is known of any
	first   int            // rank of the host's first
	problems,
	warnings,
	notes []Problem
	orderSaid bool
}

// share is what a host brings into the plan.
type share struct {
	ranks   int
	devices []Device // in the order of ranks; none: the ranks use no GPU
	// hidden is set where the job wants no GPU: there may be some, nobody has looked.
	hidden bool
	// bare is set where a host has no GPU and nothing said how many ranks it gets.
	bare bool
	// claimed is set where no other run may have the devices: they were chosen as idle.
	claimed bool
}

func newChooser(job *config.Job, at int, f facts.Host, first int) *chooser {
	c := &chooser{job: job, host: job.Hosts[at], facts: f, first: first}
	if f.Devices != nil && f.Devices.Inventory != nil && len(f.Devices.Inventory.GPUs) > 0 {
		c.devices = f.Devices
	}
	return c
}

func (c *chooser) refuse(code, format string, args ...any) {
	c.problems = append(c.problems, Problem{Code: code, Host: c.host.Name, Message: fmt.Sprintf(format, args...)})
}

// refuseAsked refuses what the job file asks for of devices, and says where it does.
func (c *chooser) refuseAsked(code, format string, args ...any) {
	c.refuse(code, "%s%s", inFile(c.host.AskedAt()), fmt.Sprintf(format, args...))
}

// inFile begins a message about a place in the job file; "" where there is none.
func inFile(place string) string {
	if place == "" {
		return ""
	}
	return place + ": "
}

func (c *chooser) warn(code, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{Code: code, Host: c.host.Name, Message: fmt.Sprintf(format, args...)})
}

func (c *chooser) note(code, format string, args ...any) {
	c.notes = append(c.notes, Problem{Code: code, Host: c.host.Name, Message: fmt.Sprintf(format, args...)})
}

// choose decides how many ranks the host gets, and on which devices.
func (c *chooser) choose() share {
	if c.host.Devices.Kind == config.DevicesNone {
		return share{ranks: max(1, c.host.PerHost), hidden: true}
	}
	if c.devices == nil {
		return c.withoutDevices()
	}
	allowed, ordered := c.visible()
	if c.host.Devices.Kind == config.DevicesProfile {
		allowed = c.ofProfile(allowed, c.host.Devices.List[0])
	}
	if len(c.problems) > 0 {
		return share{}
	}
	var s share
	switch {
	case c.host.Devices.Kind == config.DevicesList:
		s = c.listed(allowed)
	case c.host.Devices.Kind == config.DevicesProfiles:
		s = c.profiled(allowed)
	case c.wanted() > 0:
		s = c.some(allowed, ordered)
	default:
		s = c.all(allowed, ordered)
	}
	if len(c.problems) == 0 {
		c.checkSharing(s)
		c.checkMPS(s)
		c.checkSpread(s)
		c.checkUnlike(s)
		c.noteUnknown(s)
	}
	return s
}

// wanted is how many devices are asked for by number; 0: all.
func (c *chooser) wanted() int {
	if c.host.Devices.Kind == config.DevicesCount {
		return c.host.Devices.Count
	}
	each := c.job.RanksPerGPU()
	return (c.host.PerHost + each - 1) / each
}

// withoutDevices is a host without GPUs, or one whose GPUs do not answer.
func (c *chooser) withoutDevices() share {
	why := "nothing was found"
	d := c.facts.Devices
	if d != nil && d.None != "" {
		why = d.None
	}
	asked := c.job.MPS != nil || c.host.PerGPU || c.host.Devices.Kind != config.DevicesAll
	switch {
	case d != nil && d.Expected != "":
		c.refuse("devices_unknown", "%s should have GPUs (%s), but nothing can be known of them: %s; if the job uses none, write ranks { devices = \"none\" }",
			c.host.Name, d.Expected, why)
	case asked:
		c.refuseAsked("no_gpu", "%s has no GPU: %s", c.host.Name, why)
	case c.job.Backend == "nccl":
		c.refuse("no_gpu", "%s has no GPU (%s), and backend = \"nccl\" needs one for each rank", c.host.Name, why)
	}
	return share{ranks: max(1, c.host.PerHost), bare: c.host.PerHost == 0}
}

// listed are the devices that the job file names, in its order.
func (c *chooser) listed(allowed []Device) share {
	var chosen []Device
	for _, ref := range c.host.Devices.List {
		device, err := find(c.devices, ref.Text)
		if err != nil {
			c.refuse("no_such_device", "%s: %s: %v", ref.Range, c.host.Name, err)
			continue
		}
		if !slices.ContainsFunc(allowed, device.same) {
			c.refuse("not_visible", "%s: %s: %s is not among the devices that %s=%s allows there; change one of the two",
				ref.Range, c.host.Name, device, c.variable(), c.facts.Environ[c.variable()])
		}
		if at := slices.IndexFunc(chosen, device.same); at >= 0 && !c.job.Placement.Shared {
			c.refuse("same_device", "%s: %s: %q is %s, which %q names already: two ranks would share it (shared = true allows that)",
				ref.Range, c.host.Name, ref.Text, device, c.host.Devices.List[at].Text)
		}
		if why := unusable(c.card(device)); why != "" {
			c.refuse("unusable_device", "%s: %s: %s %s", ref.Range, c.host.Name, device, why)
		} else if why := c.busy(device); why != "" && !c.job.WithOthers() {
			c.warn("busy_device", "%s: %s, which the job file names, is busy: %s", c.host.Name, device, why)
		}
		chosen = append(chosen, device)
	}
	ranks := c.host.PerHost
	if ranks == 0 {
		ranks = len(chosen) * c.job.RanksPerGPU()
	}
	return share{ranks: ranks, devices: chosen}
}

func (c *chooser) card(d Device) gpu.GPU { return c.devices.Inventory.GPUs[d.card] }

// all are all devices that may be used. One that cannot be makes the job smaller than
// somebody thinks, so it is refused, not left out.
func (c *chooser) all(allowed []Device, ordered bool) share {
	if c.host.Devices.Kind == config.DevicesAll && c.facts.Environ[c.variable()] == "" {
		for _, g := range c.bare() {
			c.refuse("unusable_device", "%s: GPU %d has MIG on and %s", c.host.Name, g.Index, instances(g))
		}
	}
	if len(allowed) == 0 && len(c.problems) == 0 {
		c.refuse("no_gpu", "%s: no GPU may be used there: %s=%q names none; unset it there, or write ranks { devices = \"none\" }",
			c.host.Name, c.variable(), c.facts.Environ[c.variable()])
		return share{}
	}
	c.warnMissing()
	_, table, busy := c.idle(allowed)
	if len(table) > 0 {
		c.refuseAsked("busy_device", "%s: all %s are asked for, %s each, but not all can be had:\n%s\n  Name those to use, ranks { devices = [...] }, or their number%s",
			c.host.Name, counted(allowed), eachWords(c.job.RanksPerGPU()), strings.Join(table, "\n"), c.minFreeHint("; ", busy))
	}
	if !ordered {
		allowed = c.arrange(allowed, len(allowed))
	}
	return share{ranks: len(allowed) * c.job.RanksPerGPU(), devices: allowed, claimed: !c.job.WithOthers()}
}

func eachWords(ranks int) string {
	if ranks == 1 {
		return "one rank"
	}
	return plural.Of(ranks, "rank")
}

// warnMissing tells of GPUs that are on the bus and that the driver does not show: the job
// gets smaller than somebody thinks. A container or a scheduler may have given a part of the
// machine.
func (c *chooser) warnMissing() {
	shown, given := len(c.devices.Inventory.GPUs), c.facts.Container != "" || c.facts.Environ["SLURM_JOB_ID"] != ""
	if shown < c.devices.PCIDevices && !given && c.devices.Visibility.Variable == "" {
		c.warn("missing_devices", "%s: the driver shows %s, but %d are on the PCI bus: the others did not start or were lost (dmesg there says more)",
			c.host.Name, plural.Of(shown, "GPU"), c.devices.PCIDevices)
	}
}

func (c *chooser) minFreeHint(before string, busy int) string {
	if busy == 0 || c.job.Placement.MinFree > 0 {
		return ""
	}
	return before + "min_free = \"40GiB\" takes GPUs with that much free memory"
}

// some are as many idle devices as are asked for.
func (c *chooser) some(allowed []Device, ordered bool) share {
	n := c.wanted()
	ranks := n * c.job.RanksPerGPU()
	if c.host.PerHost > 0 {
		ranks = c.host.PerHost
	}
	idle, table, busy := c.idle(allowed)
	if c.job.Placement.Shared && c.host.Devices.Kind != config.DevicesCount {
		n = max(1, min(n, len(idle)))
	}
	asked := plural.Of(n, "rank")
	if c.host.Devices.Kind == config.DevicesCount || c.job.MPS != nil {
		asked = plural.Of(n, "GPU")
	}
	switch {
	case len(allowed) < n && c.host.Devices.Kind == config.DevicesProfile:
		c.refuseAsked("too_few_devices", "%s: %s asked, but it has %s only: two ranks never share one unless shared = true", c.host.Name, asked, counted(allowed))
	case len(allowed) < n && len(allowed) < len(devicesOf(c.devices)):
		c.refuseAsked("too_few_devices", "%s: %s asked, %s visible there (%s=%s)", c.host.Name, asked,
			plural.Of(len(allowed), "GPU"), c.variable(), c.facts.Environ[c.variable()])
	case len(allowed) < n && c.job.Placement.Shared:
		c.refuseAsked("too_few_devices", "%s: %s asked, but it has %s; how many ranks share them is said by per_host", c.host.Name, asked, plural.Of(len(allowed), "GPU"))
	case len(allowed) < n:
		c.refuseAsked("too_few_devices", "%s: %s asked, but it has %s: two ranks never share a GPU unless shared = true; ranks that use no GPU are asked for by devices = \"none\"%s",
			c.host.Name, asked, counted(allowed), c.bareHint())
	case len(idle) < n:
		c.refuseAsked("too_few_devices", "%s: %s asked, but only %d of its %s can be had:\n%s%s", c.host.Name, plural.Of(n, "GPU"),
			len(idle), counted(allowed), strings.Join(table, "\n"), c.minFreeHint("\n  ", busy))
	case ordered:
		idle = idle[:n]
	default:
		idle = c.pick(idle, n)
	}
	return share{ranks: ranks, devices: idle, claimed: !c.job.WithOthers()}
}

// idle are the devices that can be had, with a table of why the others cannot and how many
// of those are only busy.
func (c *chooser) idle(allowed []Device) (idle []Device, table []string, busy int) {
	for _, d := range allowed {
		why, use := unusable(c.card(d)), c.busy(d)
		switch {
		case why != "":
			table = append(table, fmt.Sprintf("  %s %s", d, why))
		case use != "" && !c.job.WithOthers():
			table = append(table, fmt.Sprintf("  %s is busy: %s", d, use))
			busy++
		default:
			idle = append(idle, d)
		}
	}
	return idle, table, busy
}

// checkSharing sees to it that ranks share a device only where that is meant and works.
func (c *chooser) checkSharing(s share) {
	if len(s.devices) == 0 || s.ranks <= len(s.devices) && !sharesOne(s.devices) {
		return
	}
	if c.job.MPS != nil {
		return // whose clients are let in together, in exclusive mode too
	}
	if !c.job.Placement.Shared {
		c.refuseAsked("too_few_devices", "%s: %s asked, %s: two ranks never share a GPU unless shared = true",
			c.host.Name, plural.Of(s.ranks, "rank"), plural.Of(len(s.devices), "device"))
		return
	}
	for _, d := range s.devices {
		if isExclusive(c.card(d)) {
			c.refuseAsked("exclusive_device", "%s: %s is in compute mode exclusive process: a second rank on it would fail with \"busy or unavailable\"; use MPS (mps { ranks_per_gpu = %d }), or as many ranks as GPUs", c.host.Name, d, (s.ranks+len(s.devices)-1)/len(s.devices))
			return
		}
	}
	c.warn("time_slicing", "%s: %s on %s take turns: only one computes at a time, each costs a context of its own, and nothing keeps one from taking all the memory; mps { ranks_per_gpu = N } has them compute at once, with limits",
		c.host.Name, plural.Of(s.ranks, "rank"), plural.Of(len(s.devices), "device"))
}

// checkSpread sees to it that a process that gets several devices can use them.
func (c *chooser) checkSpread(s share) {
	if len(s.devices) > s.ranks && slices.ContainsFunc(s.devices, Device.IsInstance) {
		c.refuseAsked("mig_spread", "%s: %s for %s, MIG devices among them: a process can use one MIG device only; choose as many devices as ranks",
			c.host.Name, plural.Of(len(s.devices), "device"), plural.Of(s.ranks, "rank"))
	}
}

// sharesOne reports whether a device is there twice.
func sharesOne(devices []Device) bool {
	for i, d := range devices {
		if slices.ContainsFunc(devices[:i], d.same) {
			return true
		}
	}
	return false
}

func isExclusive(g gpu.GPU) bool {
	return g.ComputeMode != nil && *g.ComputeMode == "exclusive_process"
}
