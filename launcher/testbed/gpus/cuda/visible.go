// Package cuda knows by which rules a CUDA process sees devices.
//
// The rules are those of the CUDA C++ Programming Guide ("CUDA Environment Variables",
// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER), of the MIG User Guide ("CUDA Device
// Enumeration": CUDA enumerates a single compute instance, and no whole GPU where it
// enumerates one), and, where these are silent (repeated
// entries, prefixes that fit two devices, digits with letters behind), of PyTorch's
// torch/cuda/__init__.py, which was written after the driver's behaviour.
package cuda

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Device is one device as a process sees it: a GPU or a MIG device of it.
type Device struct {
	GPU   int    // index as nvidia-smi shows it
	UUID  string // "GPU-…" or "MIG-…"
	PCI   string
	Mode  string // compute mode: "default", "exclusive_process", "prohibited"
	Total uint64 // bytes
	MIG   bool
}

// Visible are the devices that a process sees, in its order, with these values of
// CUDA_VISIBLE_DEVICES (nil: not set) and CUDA_DEVICE_ORDER.
func Visible(s *gpus.Scenario, list *string, order string) []Device {
	if s.NoLibrary || s.Init != "" {
		return nil
	}
	all := enumerate(s, order)
	if list == nil {
		return oneMIG(all)
	}
	switch {
	case strings.HasPrefix(*list, "GPU-"):
		return byPrefix(all, *list, "GPU-")
	case strings.HasPrefix(*list, "MIG-"):
		return byMIG(s, *list)
	default:
		return byIndex(all, *list)
	}
}

// Among are those of the devices of an MPS server that its client sees with this value of
// CUDA_VISIBLE_DEVICES: numbers are the server's.
func Among(devices []Device, list string) []Device {
	switch {
	case strings.HasPrefix(list, "GPU-"):
		return byPrefix(devices, list, "GPU-")
	case strings.HasPrefix(list, "MIG-"):
		return byPrefix(devices, list, "MIG-")
	default:
		return byIndex(devices, list)
	}
}

// enumerate lists the GPUs that answer, in the order of the driver: PCI addresses, or the
// fastest first, where equals keep their order. A GPU in MIG mode stands with its first MIG
// device for itself, and not at all where it has none.
func enumerate(s *gpus.Scenario, order string) []Device {
	var all []Device
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.State == gpu.StateLost || g.State == gpu.StateNeedsReset {
			continue
		}
		mode := "default"
		if g.ComputeMode != nil {
			mode = *g.ComputeMode
		}
		d := Device{GPU: i, UUID: g.UUID, PCI: g.PCI, Mode: mode, Total: *g.Memory.Total}
		if g.MIG.Enabled != nil && *g.MIG.Enabled {
			if len(g.MIG.Instances) == 0 {
				continue
			}
			d = instance(s, i, 0)
		}
		all = append(all, d)
	}
	if order == "PCI_BUS_ID" {
		return all
	}
	slices.SortStableFunc(all, func(a, b Device) int { return cmp.Compare(s.GPUs[b.GPU].Speed, s.GPUs[a.GPU].Speed) })
	return all
}

func instance(s *gpus.Scenario, card, i int) Device {
	g := &s.GPUs[card]
	mig := g.MIG.Instances[i]
	mode := "default"
	if g.ComputeMode != nil {
		mode = *g.ComputeMode
	}
	return Device{GPU: card, UUID: mig.UUID, PCI: g.PCI, Mode: mode, Total: *mig.Memory, MIG: true}
}

// oneMIG: a process uses one MIG device, the first, and where it uses one it sees no
// whole GPU besides.
func oneMIG(all []Device) []Device {
	if first := slices.IndexFunc(all, func(d Device) bool { return d.MIG }); first >= 0 {
		return all[first : first+1]
	}
	return all
}

// byIndex takes numbers up to the first that is none, is negative or is not there. A number
// that comes twice leaves no device at all.
func byIndex(all []Device, list string) []Device {
	var chosen []Device
	seen := map[int]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		n, is := leadingNumber(strings.TrimSpace(entry))
		if seen[n] && is {
			return nil
		}
		if !is || n < 0 || n >= len(all) {
			break
		}
		seen[n] = true
		chosen = append(chosen, all[n])
	}
	return oneMIG(chosen)
}

// leadingNumber reads a number as strtoul does: what is behind the digits does not count.
func leadingNumber(text string) (int, bool) {
	negative := strings.HasPrefix(text, "-")
	text = strings.TrimLeft(text, "+-")
	n, digits := 0, 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' && digits < 9 {
		n = 10*n + int(text[digits]-'0')
		digits++
	}
	if negative {
		n = -n
	}
	return n, digits > 0 && !(negative && n == 0)
}

// byPrefix takes UUIDs and beginnings of them up to the first that fits no device or
// several. An entry that comes twice, or two for one device, leave none.
func byPrefix(all []Device, list, prefix string) []Device {
	var chosen []Device
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		if seen[entry] {
			return nil
		}
		seen[entry] = true
		if !strings.HasPrefix(entry, prefix) {
			break
		}
		d, is := only(all, entry)
		if !is {
			break
		}
		if slices.Contains(chosen, d) {
			return nil
		}
		chosen = append(chosen, d)
	}
	return oneMIG(chosen)
}

func only(all []Device, prefix string) (found Device, is bool) {
	for _, d := range all {
		if strings.HasPrefix(d.UUID, prefix) {
			if is {
				return Device{}, false
			}
			found, is = d, true
		}
	}
	return found, is
}

// byMIG takes MIG devices by whole UUIDs: "MIG-…", or as old drivers have them
// "MIG-GPU-…/GI/CI". A process uses the first and sees no other.
func byMIG(s *gpus.Scenario, list string) []Device {
	first, _, _ := strings.Cut(list, ",")
	for card := range s.GPUs {
		if s.GPUs[card].State != gpu.StateOK {
			continue
		}
		for i, mig := range s.GPUs[card].MIG.Instances {
			if first == mig.UUID {
				return []Device{instance(s, card, i)}
			}
		}
	}
	return nil
}
