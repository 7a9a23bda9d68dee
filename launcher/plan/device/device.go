// Package device is what ranks are given: GPUs and MIG instances of them, how job files and hosts name them, what
// they have of memory and processes, and how far they are from each other.
package device

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Device is what a rank is given: a GPU, or a MIG instance of one.
type Device struct {
	gpu.ID
	MIG  int    // of the instance on its GPU; wholeGPU where it is none
	Name string // of the GPU, and the instance's profile
	// Profile is the instance's, such as "1g.10gb"; "" for a GPU, or where it is not known.
	Profile string `json:",omitempty"`

	Card int `json:"-"` // position of the GPU in the host's facts
}

// wholeGPU is the MIG of a device that is not an instance.
const wholeGPU = -1

// String is the device as people call it.
func (d Device) String() string {
	if !d.IsInstance() {
		return fmt.Sprintf("GPU %d", d.Index)
	}
	return fmt.Sprintf("MIG device %d of GPU %d", d.MIG, d.Index)
}

// IsInstance reports whether the device is a part of a GPU, made by MIG.
func (d Device) IsInstance() bool { return d.MIG != wholeGPU }

// Same reports whether two devices of a host are one piece of hardware. Not every device has a known UUID, or a PCI
// address.
func (d Device) Same(other Device) bool {
	return d.UUID != "" && d.UUID == other.UUID || d.Card == other.Card && d.MIG == other.MIG
}

// ComesBefore reports whether nvidia-smi shows a device before another.
func (d Device) ComesBefore(other Device) bool {
	return cmp.Or(cmp.Compare(d.Card, other.Card), cmp.Compare(d.MIG, other.MIG)) < 0
}

// HasProfile reports whether a device is a MIG device of a profile.
func (d Device) HasProfile(profile string) bool {
	return d.IsInstance() && strings.EqualFold(d.Profile, profile)
}

// IsPartitioned reports whether MIG is on: the GPU itself cannot be used then.
func IsPartitioned(g gpu.GPU) bool { return gpu.IsTrue(g.MIG.Enabled) }

// IsEmpty reports whether nobody can use a GPU: MIG is on, and there are no instances.
func IsEmpty(g *gpu.GPU) bool { return IsPartitioned(*g) && len(g.MIG.Instances) == 0 }

// IsExclusive reports whether one process only may use a GPU.
func IsExclusive(g *gpu.GPU) bool {
	return g.ComputeMode != nil && *g.ComputeMode == "exclusive_process"
}

// All are the devices of a host in the order of nvidia-smi: its GPUs, and in place of a GPU with MIG its instances.
func All(d *facts.Devices) []Device {
	var all []Device
	for i := range d.Inventory.GPUs {
		if g := &d.Inventory.GPUs[i]; IsPartitioned(*g) {
			all = append(all, Instances(g, i)...)
		} else {
			all = append(all, whole(g, i))
		}
	}
	return all
}

func whole(g *gpu.GPU, card int) Device {
	return Device{ID: g.ID(), MIG: wholeGPU, Name: g.Name, Card: card}
}

// Instances are the MIG devices of a GPU at a position in the facts.
func Instances(g *gpu.GPU, card int) []Device {
	all := make([]Device, len(g.MIG.Instances))
	for i, m := range g.MIG.Instances {
		all[i] = Device{ID: g.InstanceID(m), MIG: m.Index, Profile: m.Profile, Card: card,
			Name: strings.TrimSpace(g.Name + " " + m.Profile)}
	}
	return all
}

// InstanceNames are the MIG devices of a host as people call them, by UUID.
func InstanceNames(d *facts.Devices) map[string]string {
	names := map[string]string{}
	if d == nil || d.Inventory == nil {
		return names
	}
	for i := range d.Inventory.GPUs {
		for _, part := range Instances(&d.Inventory.GPUs[i], i) {
			if part.UUID != "" {
				names[part.UUID] = part.String()
			}
		}
	}
	return names
}

// Parts are the MIG devices among devices.
func Parts(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.IsInstance() })
}

// OnOneGPU reports whether two MIG devices are of one GPU.
func OnOneGPU(devices []Device) bool {
	found := Parts(devices)
	for i, d := range found {
		if slices.ContainsFunc(found[:i], func(other Device) bool { return other.Card == d.Card && !other.Same(d) }) {
			return true
		}
	}
	return false
}

// Repeats reports whether a device is there twice.
func Repeats(devices []Device) bool {
	for i, d := range devices {
		if slices.ContainsFunc(devices[:i], d.Same) {
			return true
		}
	}
	return false
}

// Split parts devices by a key and keeps their order, in the parts and between them.
func Split[K comparable](devices []Device, key func(Device) K) [][]Device {
	var parts [][]Device
	at := map[K]int{}
	for _, d := range devices {
		k := key(d)
		i, known := at[k]
		if !known {
			i = len(parts)
			at[k] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], d)
	}
	return parts
}

// Kind is the key of devices by what they are: GPUs, or MIG devices of a profile.
func Kind(d Device) string {
	if d.IsInstance() {
		return "mig " + strings.ToLower(d.Profile)
	}
	return "gpu"
}

// KindNames count MIG devices by profile: "2 of 3g.40gb, 4 of 1g.10gb".
func KindNames(devices []Device) string {
	var names []string
	for _, same := range Split(Parts(devices), Kind) {
		names = append(names, fmt.Sprintf("%d of %s", len(same), cmp.Or(same[0].Profile, "unknown profile")))
	}
	return strings.Join(names, ", ")
}

// Unusable says why no program can use a device; "" where it can.
func Unusable(g *gpu.GPU) string {
	switch g.State {
	case gpu.StateLost:
		return "is lost: it has fallen off the bus, the machine needs a reboot"
	case gpu.StateNeedsReset:
		return "needs a reset before it can be used"
	case gpu.StateUnknown:
		return "does not answer properly"
	}
	if g.ComputeMode != nil && *g.ComputeMode == "prohibited" {
		return "is in compute mode prohibited: no program may compute on it (nvidia-smi -c 0, by root, ends that)"
	}
	return ""
}
