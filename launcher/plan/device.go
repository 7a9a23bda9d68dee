package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Device is what a rank is given: a GPU, or a MIG instance of one.
type Device struct {
	Index int    // of the GPU, as nvidia-smi shows it
	MIG   int    // of the instance on its GPU; wholeGPU where it is none
	UUID  string // of the instance, where it is one
	PCI   string // of the GPU
	Name  string // of the GPU, and the instance's profile
	// Profile is the instance's, such as "1g.10gb"; "" for a GPU, or where it is not told.
	Profile string `json:",omitempty"`

	card int // position of the GPU in the host's facts
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

// same reports whether two devices of a host are one piece of hardware. Not every device
// tells its UUID, or has a PCI address.
func (d Device) same(other Device) bool {
	return d.UUID != "" && d.UUID == other.UUID || d.card == other.card && d.MIG == other.MIG
}

// comesBefore reports whether nvidia-smi shows a device before another.
func (d Device) comesBefore(other Device) bool {
	return cmp.Or(cmp.Compare(d.card, other.card), cmp.Compare(d.MIG, other.MIG)) < 0
}

// isPartitioned reports whether MIG is on: the GPU itself cannot be used then.
func isPartitioned(g gpu.GPU) bool { return g.MIG.Enabled != nil && *g.MIG.Enabled }

// devicesOf are the devices of a host in the order of nvidia-smi: its GPUs, and in place
// of a GPU with MIG its instances.
func devicesOf(d *facts.Devices) []Device {
	var all []Device
	for i, g := range d.Inventory.GPUs {
		if !isPartitioned(g) {
			all = append(all, deviceOf(g, i))
			continue
		}
		all = append(all, instancesOf(g, i)...)
	}
	return all
}

func deviceOf(g gpu.GPU, at int) Device {
	return Device{Index: g.Index, MIG: wholeGPU, UUID: g.UUID, PCI: g.PCI, Name: g.Name, card: at}
}

func instanceOf(g gpu.GPU, at int, m gpu.MIGInstance) Device {
	return Device{Index: g.Index, MIG: m.Index, UUID: m.UUID, PCI: g.PCI, Name: strings.TrimSpace(g.Name + " " + m.Profile), Profile: m.Profile, card: at}
}

// find looks up the device that a text names: an index, a UUID or the beginning of one, a
// PCI address in any usual form, or the name of a MIG instance.
func find(d *facts.Devices, text string) (Device, error) {
	upper := strings.ToUpper(text)
	switch {
	case isNumber(text):
		return byIndex(d, text)
	case strings.HasPrefix(upper, "MIG-"):
		return byMIG(d, text)
	case strings.HasPrefix(upper, "GPU-"):
		return byUUID(d, text)
	}
	if pci, is := gpu.SysfsPCI(text); is {
		return only(d, text, func(g gpu.GPU) bool { return g.PCI == pci })
	}
	return Device{}, fmt.Errorf("%q is no device: write a number of nvidia-smi, a UUID or its beginning (GPU-…, MIG-…), or a PCI address", text)
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

func byIndex(d *facts.Devices, text string) (Device, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return Device{}, err
	}
	return only(d, text, func(g gpu.GPU) bool { return g.Index == n })
}

func byUUID(d *facts.Devices, text string) (Device, error) {
	return only(d, text, func(g gpu.GPU) bool { return begins(g.UUID, text) })
}

func begins(uuid, text string) bool {
	return uuid != "" && len(text) <= len(uuid) && strings.EqualFold(uuid[:len(text)], text)
}

// only finds the one GPU that a text names.
func only(d *facts.Devices, text string, is func(gpu.GPU) bool) (Device, error) {
	var found []int
	for i, g := range d.Inventory.GPUs {
		if is(g) {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 0:
		return Device{}, fmt.Errorf("there is no GPU %s: there %s", text, inventory(d))
	case len(found) > 1:
		return Device{}, fmt.Errorf("%q is ambiguous: it begins the UUIDs of GPUs %s; write more of it", text, candidates(d, found))
	}
	g := d.Inventory.GPUs[found[0]]
	if isPartitioned(g) {
		return Device{}, fmt.Errorf("GPU %s has MIG on and cannot be used itself: %s", text, instances(g))
	}
	return deviceOf(g, found[0]), nil
}

// inventory says which GPUs there are.
func inventory(d *facts.Devices) string {
	var numbers []int
	for _, g := range d.Inventory.GPUs {
		numbers = append(numbers, g.Index)
	}
	slices.Sort(numbers)
	n := len(numbers)
	switch {
	case n == 0:
		return "is none"
	case n == 1:
		return fmt.Sprintf("is GPU %d only", numbers[0])
	case numbers[n-1]-numbers[0] == n-1:
		return fmt.Sprintf("are %d, %d to %d", n, numbers[0], numbers[n-1])
	}
	return fmt.Sprintf("are GPUs %s only", Spans(numbers))
}

// candidates are GPUs with their UUIDs, in words.
func candidates(d *facts.Devices, at []int) string {
	words := make([]string, len(at))
	for i, card := range at {
		words[i] = fmt.Sprintf("%d (%s)", d.Inventory.GPUs[card].Index, d.Inventory.GPUs[card].UUID)
	}
	return strings.Join(words, " and ")
}

func instances(g gpu.GPU) string {
	if len(g.MIG.Instances) == 0 {
		return "it has no instances, and muster makes none: " + layoutCommands(g)
	}
	return "name one of its instances, " + instanceNames(instancesOf(g, 0))
}

// instancesOf are the MIG devices of a GPU.
func instancesOf(g gpu.GPU, at int) []Device {
	all := make([]Device, len(g.MIG.Instances))
	for i, m := range g.MIG.Instances {
		all[i] = instanceOf(g, at, m)
	}
	return all
}

// mostInstances is how many MIG devices are named one by one.
const mostInstances = 16

// instanceNames are MIG devices by the names that a job file takes, with their profiles.
func instanceNames(devices []Device) string {
	var words []string
	for i, d := range devices {
		if i == mostInstances {
			words = append(words, fmt.Sprintf("%d more", len(devices)-i))
			break
		}
		words = append(words, fmt.Sprintf("%s (%s)", d.UUID, d.Profile))
	}
	return strings.Join(words, ", ")
}

// byMIG finds a MIG device by its UUID or the beginning of it, or by its old name.
func byMIG(d *facts.Devices, text string) (Device, error) {
	var found []Device
	for i, g := range d.Inventory.GPUs {
		for _, m := range g.MIG.Instances {
			if begins(m.UUID, text) || isOldName(g, m, text) {
				found = append(found, instanceOf(g, i, m))
			}
		}
	}
	there := parts(devicesOf(d))
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Device{}, fmt.Errorf("%q is ambiguous: it begins the names of %s; write more of it", text, instanceNames(found))
	case len(there) > 0:
		return Device{}, fmt.Errorf("there is no MIG device %s: there are %s", text, instanceNames(there))
	case slices.ContainsFunc(d.Inventory.GPUs, isPartitioned):
		return Device{}, fmt.Errorf("there is no MIG device %s: its GPUs with MIG have no devices", text)
	}
	return Device{}, fmt.Errorf("there is no MIG device %s: MIG is on for none of its GPUs", text)
}

// isOldName reports whether a text is MIG-GPU-<UUID of the GPU>/<GPU instance>/<compute
// instance>, the name of drivers before 470 (CUDA's guide to MIG), of a MIG device.
func isOldName(g gpu.GPU, m gpu.MIGInstance, text string) bool {
	words := strings.Split(text[len("MIG-"):], "/")
	return len(words) == 3 && begins(g.UUID, words[0]) && isID(m.GI, words[1]) && isID(m.CI, words[2])
}

func isID(id *int, text string) bool { return id != nil && strconv.Itoa(*id) == text }

// unusable says why no program can use a device; "" where it can.
func unusable(g gpu.GPU) string {
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
