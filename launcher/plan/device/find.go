package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Find looks up the device that a text names: an index, a UUID or the beginning of one, a PCI address in any usual
// form, or the name of a MIG instance.
func Find(d *facts.Devices, text string) (Device, error) {
	upper := strings.ToUpper(text)
	switch {
	case IsNumber(text):
		n, _ := strconv.Atoi(text)
		return only(d, text, func(g *gpu.GPU) bool { return g.Index == n })
	case strings.HasPrefix(upper, "MIG-"):
		return findInstance(d, text)
	case strings.HasPrefix(upper, "GPU-"):
		return only(d, text, func(g *gpu.GPU) bool { return begins(g.UUID, text) })
	}
	if pci, is := gpu.SysfsPCI(text); is {
		return only(d, text, func(g *gpu.GPU) bool { return g.PCI == pci })
	}
	return Device{}, fmt.Errorf(
		"%q is no device: write a number of nvidia-smi, a UUID or its beginning (GPU-…, MIG-…), or a PCI address", text)
}

func IsNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

func begins(uuid, text string) bool {
	return uuid != "" && len(text) <= len(uuid) && strings.EqualFold(uuid[:len(text)], text)
}

// only finds the one GPU that a text names.
func only(d *facts.Devices, text string, is func(*gpu.GPU) bool) (Device, error) {
	var found []Device
	for i := range d.Inventory.GPUs {
		if is(&d.Inventory.GPUs[i]) {
			found = append(found, whole(&d.Inventory.GPUs[i], i))
		}
	}
	switch {
	case len(found) == 0:
		return Device{}, fmt.Errorf("there is no GPU %s: there %s", text, inventory(d))
	case len(found) > 1:
		names := make([]string, len(found))
		for i, d := range found {
			names[i] = fmt.Sprintf("%d (%s)", d.Index, d.UUID)
		}
		return Device{}, fmt.Errorf("%q is ambiguous: it begins the UUIDs of GPUs %s; write more of it",
			text, strings.Join(names, " and "))
	}
	if g := d.Inventory.GPUs[found[0].Card]; IsPartitioned(g) {
		return Device{}, fmt.Errorf("GPU %s has MIG on and cannot be used itself: %s", text, WhyNoInstance(&g))
	}
	return found[0], nil
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
	return fmt.Sprintf("are GPUs %s only", text.Ranges(numbers))
}

// WhyNoInstance says what to do about a GPU with MIG. Only people change the layout: whoever uses the GPU would lose
// what is there.
func WhyNoInstance(g *gpu.GPU) string {
	if len(g.MIG.Instances) > 0 {
		return "name one of its instances, " + instanceNames(Instances(g, 0))
	}
	return fmt.Sprintf("it has no instances, and muster makes none: root does that with nvidia-smi mig -i %d -cgi 1g.10gb,1g.10gb -C "+
		"(nvidia-smi mig -i %[1]d -lgip lists the profiles that fit; where GPU instances stand and only their compute instances lack: "+
		"nvidia-smi mig -i %[1]d -cci), or turns MIG off with nvidia-smi -i %[1]d -mig 0", g.Index)
}

// maxInstances is how many MIG devices are named one by one.
const maxInstances = 16

// instanceNames are MIG devices by the names that a job file takes, with their profiles.
func instanceNames(devices []Device) string {
	var names []string
	for i, d := range devices {
		if i == maxInstances {
			names = append(names, fmt.Sprintf("%d more", len(devices)-i))
			break
		}
		names = append(names, fmt.Sprintf("%s (%s)", d.UUID, d.Profile))
	}
	return strings.Join(names, ", ")
}

// findInstance finds a MIG device by its UUID or the beginning of it, or by its old name.
func findInstance(d *facts.Devices, text string) (Device, error) {
	var found []Device
	for i := range d.Inventory.GPUs {
		g := &d.Inventory.GPUs[i]
		for at, device := range Instances(g, i) {
			if begins(device.UUID, text) || isOldName(g, g.MIG.Instances[at], text) {
				found = append(found, device)
			}
		}
	}
	there := Parts(All(d))
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Device{}, fmt.Errorf("%q is ambiguous: it begins the names of %s; write more of it", text, instanceNames(found))
	case len(there) > 0:
		return Device{}, fmt.Errorf("there is no MIG device %s: there are %s", text, instanceNames(there))
	case slices.ContainsFunc(d.Inventory.GPUs, IsPartitioned):
		return Device{}, fmt.Errorf("there is no MIG device %s: its GPUs with MIG have no devices", text)
	}
	return Device{}, fmt.Errorf("there is no MIG device %s: MIG is on for none of its GPUs", text)
}

// isOldName reports whether a text is MIG-GPU-<UUID of the GPU>/<GPU instance>/<compute instance>, the name of
// drivers before 470 (CUDA's guide to MIG), of a MIG device.
func isOldName(g *gpu.GPU, m gpu.MIGInstance, text string) bool {
	parts := strings.Split(text[len("MIG-"):], "/")
	return len(parts) == 3 && begins(g.UUID, parts[0]) && isID(m.GI, parts[1]) && isID(m.CI, parts[2])
}

func isID(id *int, text string) bool { return id != nil && strconv.Itoa(*id) == text }
