//go:build linux

package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/facts/pci"
	"github.com/muster-dev/muster/launcher/hostfs"
)

// hcas reads /sys/class/infiniband, which has RoCE devices too
// (sysfs-class-infiniband): a line for each port, in natural order.
func hcas(root Root) []HCA {
	const class = "/sys/class/infiniband/"
	var found []HCA
	devices := root.Names(class)
	slices.SortFunc(devices, hostfs.Natural)
	for _, name := range devices {
		address := pci.Behind(root, class+name)
		ports := root.Names(class + name + "/ports")
		slices.SortFunc(ports, hostfs.Natural)
		for _, p := range ports {
			port, err := strconv.Atoi(p)
			if err != nil {
				continue
			}
			h := portOf(root, class+name, port)
			h.Name, h.PCI, h.NUMA = name, address, pci.NUMA(root, class+name+"/device")
			found = append(found, h)
		}
	}
	return found
}

// verbs reports whether the device files by which programs reach the adapters exist,
// /dev/infiniband/uverbs*. In containers they are often missing.
func verbs(root Root) *bool {
	found := slices.ContainsFunc(root.Names("/dev/infiniband"), func(name string) bool {
		return strings.HasPrefix(name, "uverbs")
	})
	return &found
}

func portOf(root Root, device string, port int) HCA {
	dir := fmt.Sprintf("%s/ports/%d", device, port)
	return HCA{
		Port:      port,
		State:     stateWord(root.Read(dir + "/state")),
		PhysState: stateWord(root.Read(dir + "/phys_state")),
		LinkLayer: root.Read(dir + "/link_layer"),
		SpeedGbps: gbps(root.Read(dir + "/rate")),
		Interface: interfaceOf(root, device, port),
	}
}

// stateWord reads "4: ACTIVE".
func stateWord(text string) string {
	_, word, _ := strings.Cut(text, ":")
	return strings.ToLower(strings.TrimSpace(word))
}

// gbps reads "400 Gb/sec (4X NDR)".
func gbps(text string) int {
	number, _, _ := strings.Cut(text, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return int(rate)
}

// interfaceOf finds the network interface of a port. RoCE tells it with the addresses of
// the port. IPoIB does not; there the device's interfaces know their port (dev_port,
// from 0).
func interfaceOf(root Root, device string, port int) string {
	if name := root.Read(fmt.Sprintf("%s/ports/%d/gid_attrs/ndevs/0", device, port)); name != "" {
		return name
	}
	names := root.Names(device + "/device/net")
	if len(names) == 1 {
		return names[0]
	}
	slices.SortFunc(names, hostfs.Natural)
	for _, name := range names {
		if root.Read(device+"/device/net/"+name+"/dev_port") == strconv.Itoa(port-1) {
			return name
		}
	}
	return ""
}
