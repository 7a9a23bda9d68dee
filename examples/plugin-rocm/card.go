package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Cards are what amdgpu, the graphics part of the driver, shows of each device. Sources:
// Documentation/gpu/amdgpu/driver-misc.rst and Documentation/ABI/testing/sysfs-bus-pci of
// Linux.

const vendorAMD = "0x1002"

// cardsByPCI finds AMD's devices by PCI address.
func cardsByPCI(drm folder) map[string]folder {
	found := map[string]folder{}
	for _, number := range drm.numbered("card") {
		device := drm.in(fmt.Sprintf("card%d", number), "device")
		if device.text("vendor") != vendorAMD {
			continue
		}
		for line := range strings.Lines(device.text("uevent")) {
			if pci, is := strings.CutPrefix(strings.TrimSpace(line), "PCI_SLOT_NAME="); is {
				found[pci] = device
			}
		}
	}
	return found
}

// readCard fills in what the card's folder says.
func readCard(g *gpu.GPU, device folder) {
	g.State = gpu.StateOK
	if id := device.text("unique_id"); id != "" { // 16 hexadecimal digits
		g.UUID = "GPU-" + strings.TrimPrefix(id, "0x") // as ROCR_VISIBLE_DEVICES takes it
	}
	if name := device.text("product_name"); name != "" {
		g.Name = name
	}
	var err error
	if g.Memory.Total, err = device.number("mem_info_vram_total"); err != nil {
		g.State = gpu.StateUnknown
		explain(g, "memory.total", err.Error())
	}
	if g.Memory.Used, err = device.number("mem_info_vram_used"); err != nil {
		explain(g, "memory.used", err.Error())
	}
	g.PCIe.Generation = generation(device.text("current_link_speed"))
	g.PCIe.GenerationMax = generation(device.text("max_link_speed"))
	g.PCIe.Width = width(device.text("current_link_width"))
	g.PCIe.WidthMax = width(device.text("max_link_width"))
}

// speeds are those of the generations of PCI Express.
var speeds = []string{"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"}

// generation reads "16.0 GT/s PCIe"; older kernels write "5 GT/s".
func generation(speed string) *int {
	number, _, _ := strings.Cut(speed, " ")
	for i, s := range speeds {
		if number == s || number == strings.TrimSuffix(s, ".0") {
			n := i + 1
			return &n
		}
	}
	return nil
}

// width is 0 or 255 in the files of devices that do not tell.
func width(text string) *int {
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || n > 32 {
		return nil
	}
	return &n
}

func explain(g *gpu.GPU, value, reason string) {
	if g.Why == nil {
		g.Why = map[string]string{}
	}
	g.Why[value] = reason
}
