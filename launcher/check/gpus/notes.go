package gpus

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Notes are what somebody should know before a job is put on a host, though nothing speaks against it. Their codes are
// no kinds of findings that a job file could name.
var Notes = []rule.Rule{
	rule.OfHost("given_part", rule.Facts, givenPart),
	rule.OfHost("visible_devices", rule.Facts, visibleDevices),
	rule.OfHost("device_notes", rule.Facts, deviceNotes),
	rule.OfHost("node_without_cpus", rule.Facts, nodesWithoutCPUs),
	rule.OfGPU("taken", rule.Facts, taken),
	rule.OfGPU("one_process", rule.Facts, otherComputeMode),
	rule.OfGPU("mig_devices", rule.Facts, migDevices),
}

// givenPart is about hosts of which a container or a scheduler has a part.
func givenPart(h *rule.Host) rule.Findings {
	d := h.Facts.Devices
	if d == nil || d.Inventory == nil || d.Visibility.Variable != "" || d.PCIDevices <= len(d.Inventory.GPUs) || !h.IsGivenPart() {
		return nil
	}
	return h.Find("", "%s has been given %d of the machine's %d GPUs", h.InContainer("this container", "this Slurm job"), len(d.Inventory.GPUs), d.PCIDevices)
}

// visibleDevices is about a variable on the host that limits which devices may be used.
func visibleDevices(h *rule.Host) rule.Findings {
	name := "CUDA_VISIBLE_DEVICES"
	if d := h.Facts.Devices; d == nil {
		return nil
	} else if d.Inventory != nil {
		name = cmp.Or(d.Visibility.Variable, name)
	}
	switch value, set := h.Facts.Environ[name]; {
	case !set:
		return nil
	case value == "":
		return h.Find("", "%s is set to nothing on this host: no GPU is to be used", name)
	default:
		return h.Find("", "%s=%s is set on this host: only these are to be used, in this order", name, value)
	}
}

func deviceNotes(h *rule.Host) (found rule.Findings) {
	if h.Facts.Devices == nil || h.Facts.Devices.Inventory == nil {
		return nil
	}
	for _, note := range h.Facts.Devices.Notes {
		found = append(found, h.Find("", "%s", note)...)
	}
	return found
}

// nodesWithoutCPUs is about GPUs whose own CPUs may not be used.
func nodesWithoutCPUs(h *rule.Host) (found rule.Findings) {
	for _, node := range h.Facts.Nodes {
		var at []int
		for i, g := range h.GPUs {
			if near := h.Facts.Devices.Near; i < len(near) && near[i].NUMA != nil && *near[i].NUMA == node.ID {
				at = append(at, g.Index)
			}
		}
		if len(node.CPUs) == 0 && len(at) > 0 {
			found = append(found, h.Find("", "no CPU of node %d may be used here: %s work across sockets", node.ID, text.Numbered("GPU", at))...)
		}
	}
	return found
}

func taken(g *rule.GPU) rule.Findings {
	run := g.Host.Facts.Devices.Taken[g.UUID]
	if run == "" {
		return nil
	}
	return g.Find("", "held by muster's run %s", run)
}

func otherComputeMode(g *rule.GPU) rule.Findings {
	if g.ComputeMode == nil || *g.ComputeMode == "default" || *g.ComputeMode == "prohibited" {
		return nil
	}
	return g.Find("", "compute mode %s", gpu.Spaced(*g.ComputeMode))
}

// migDevices tells into what a GPU is partitioned.
func migDevices(g *rule.GPU) rule.Findings {
	if !gpu.IsTrue(g.MIG.Enabled) {
		return nil
	}
	var profiles, counted []string
	counts := map[string]int{}
	for _, m := range g.MIG.Instances {
		if counts[m.Profile]++; counts[m.Profile] == 1 {
			profiles = append(profiles, m.Profile)
		}
	}
	for _, profile := range profiles {
		counted = append(counted, fmt.Sprintf("%d of %s", counts[profile], cmp.Or(profile, "a profile that is not told")))
	}
	switch {
	case g.MIG.Instances == nil:
		return g.Find("", "partitioned (MIG), and into what is not told")
	case len(counted) == 0:
		return g.Find("", "partitioned (MIG), and it has no devices: nobody can use it; nvidia-smi mig -i %d -lgip lists the profiles that fit, and root makes devices with nvidia-smi mig -i %d -cgi PROFILE,... -C", g.Index, g.Index).As(rule.Fail)
	}
	return g.Find("", "partitioned (MIG) into %s: %s", plural.Of(len(g.MIG.Instances), "device"), strings.Join(counted, ", "))
}
