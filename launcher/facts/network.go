//go:build linux

package facts

import (
	"net"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/facts/pci"
)

// nics asks the kernel (rtnetlink(7)) for the interfaces and sysfs for what is behind them
// (sysfs-class-net).
func nics(root Root) []NIC {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []NIC
	for _, i := range interfaces {
		class := "/sys/class/net/" + i.Name
		speed, _ := strconv.Atoi(root.Read(class + "/speed"))
		slot := pci.Behind(root, class)
		addresses, networks := addresses(i)
		found = append(found, NIC{
			Name:      i.Name,
			Up:        i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0,
			Loopback:  i.Flags&net.FlagLoopback != 0,
			Virtual:   virtual(root, i.Name),
			MTU:       i.MTU,
			SpeedMbps: max(speed, 0), // -1 where the driver does not know
			State:     root.Read(class + "/operstate"),
			PCI:       slot,
			NUMA:      slotNode(root, slot),
			Addresses: addresses,
			Networks:  networks,
		})
	}
	return found
}

// slotNode is the NUMA node of a slot; not of the interface's own device, which with
// virtio has none.
func slotNode(root Root, slot string) *int {
	if slot == "" {
		return nil
	}
	return pci.NUMA(root, pci.Bus+slot)
}

// addresses are those of an interface, without and with the length of the prefix.
func addresses(i net.Interface) (addresses, networks []string) {
	list, err := i.Addrs()
	if err != nil {
		return nil, nil
	}
	addresses, networks = []string{}, []string{}
	for _, a := range list {
		if ipnet, ok := a.(*net.IPNet); ok && !ipnet.IP.IsLinkLocalUnicast() {
			addresses, networks = append(addresses, ipnet.IP.String()), append(networks, ipnet.String())
		}
	}
	return addresses, networks
}

// virtual says why an interface leads to no other machine: container and VM
// bridges exist on many hosts with the same private address. A bridge by sysfs
// is only taken for one of those by its name: some sites put the real network
// behind a bridge of their own (br0).
func virtual(root Root, name string) string {
	for _, known := range []struct{ prefix, what string }{
		{"docker", "docker's bridge"},
		{"br-", "a docker network's bridge"},
		{"veth", "a container's link"},
		{"virbr", "libvirt's bridge"},
		{"lxcbr", "lxc's bridge"},
		{"lxdbr", "lxd's bridge"},
		{"cni", "a Kubernetes bridge"},
		{"flannel", "a Kubernetes overlay"},
		{"cali", "a Kubernetes link"},
		{"podman", "podman's bridge"},
		{"tailscale", "a VPN"},
		{"wg", "a VPN"},
		{"tun", "a tunnel"},
		{"dummy", "a dummy interface"},
	} {
		if strings.HasPrefix(name, known.prefix) {
			return known.what
		}
	}
	return ""
}

// addressesOf looks a name up in the text of /etc/hosts. No name server is asked:
// one that does not answer would hold up every start.
func addressesOf(name, hosts string) []string {
	var found []string
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		for i, alias := range fields {
			if i > 0 && strings.EqualFold(alias, name) {
				found = append(found, fields[0])
			}
		}
	}
	return found
}

// reachedAt takes the server's address from SSH_CONNECTION: "CLIENT PORT SERVER PORT".
func reachedAt(connection string) string {
	fields := strings.Fields(connection)
	if len(fields) != 4 || net.ParseIP(fields[2]) == nil {
		return ""
	}
	return fields[2]
}

func ephemeralPorts(text string) [2]int {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return [2]int{32768, 60999} // the kernel's default (ip-sysctl)
	}
	first, _ := strconv.Atoi(fields[0])
	last, _ := strconv.Atoi(fields[1])
	return [2]int{first, last}
}
