//go:build linux && cgo

package nvml

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/plugins/gpu"
)

// identity is what tells GPUs apart.
type identity struct{ uuid, pci, name string }

// address is an nvmlPciInfo_t in sysfs form, empty where it holds no address.
func address(pci nvml.PciInfo) string {
	found, _ := gpu.SysfsPCI(characters(pci.BusId[:]))
	legacy, _ := gpu.SysfsPCI(characters(pci.BusIdLegacy[:]))
	numbers, _ := gpu.SysfsPCI(fmt.Sprintf("%x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device))
	return cmp.Or(found, legacy, numbers)
}

// characters is a C string.
func characters(array []int8) string {
	text := make([]byte, len(array))
	for i, c := range array {
		text[i] = byte(c)
	}
	return unix.ByteSliceToString(text)
}

// identify says what the GPUs are that NVML does not tell of, from the driver's folder and
// from the probe before, and remembers all for the next.
func (p *Prober) identify(r *probe, devices []*device) {
	listed := listGPUs(p.folder)
	here := map[string]*identity{}
	for i := range listed {
		here[listed[i].pci] = &listed[i]
	}
	var without []*device
	for _, d := range devices {
		delete(here, d.card.PCI)
	}
	for i, d := range devices {
		before := len(p.known) == len(devices) && d.card.PCI == "" && d.card.UUID == ""
		if before && p.known[i].pci != "" && (len(listed) == 0 || here[p.known[i].pci] != nil) {
			complete(d, p.known[i])
			delete(here, d.card.PCI)
		}
		if d.card.PCI == "" {
			without = append(without, d)
		}
	}
	// Indices go by PCI address: what is left of both belongs together, in that order.
	if len(without) > 0 && len(without) == len(here) {
		for _, card := range listed {
			if here[card.pci] != nil {
				complete(without[0], card)
				without = without[1:]
			}
		}
	} else if n := len(here); n > 0 {
		r.note("NVML does not show all GPUs that the driver has, as in a container or a job's cgroup: %d less", n)
	}
	p.known = p.known[:0]
	for _, d := range devices {
		p.known = append(p.known, identity{d.card.UUID, d.card.PCI, d.card.Name})
	}
}

// complete fills in what NVML did not tell.
func complete(d *device, i identity) {
	d.card.UUID = cmp.Or(d.card.UUID, i.uuid)
	d.card.PCI = cmp.Or(d.card.PCI, i.pci)
	d.card.Name = cmp.Or(d.card.Name, i.name)
}

// listGPUs reads the driver's folder: one folder a GPU, named by its PCI address, in that
// order. None where it cannot be read, as in many containers.
func listGPUs(folder string) []identity {
	entries, _ := os.ReadDir(folder)
	var found []identity
	for _, entry := range entries {
		if pci, is := gpu.SysfsPCI(entry.Name()); is {
			information, _ := os.ReadFile(filepath.Join(folder, entry.Name(), "information"))
			found = append(found, parseInformation(pci, information))
		}
	}
	return found
}

// parseInformation reads the file of a GPU: lines such as "GPU UUID: \t GPU-…". Question
// marks stand for the UUID of one that was never started.
func parseInformation(pci string, information []byte) identity {
	card := identity{pci: pci}
	for line := range bytes.Lines(information) {
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "Model" && value != "Unknown":
			card.name = value
		case name == "GPU UUID" && !strings.Contains(value, "?"):
			card.uuid = value
		}
	}
	return card
}
