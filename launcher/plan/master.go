package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/muster-dev/muster/launcher/facts"
)

// Master is an address of the head host that the others could meet at.
type Master struct {
	Addr    string // an IP, never a name: one host or another may not resolve a name
	NIC     string
	Passed  string `json:",omitempty"` // why it was passed over; empty: a candidate
	reached bool   // the SSH connection came to it
	speed   int
}

const loopback = "127.0.0.1"

// masters lists the head host's addresses, candidates first, best first: the one that SSH came to, then IPv4 before
// IPv6, faster before slower, in the host's own order.
func masters(head facts.Host, hosts int) []Master {
	if hosts == 1 {
		return []Master{{Addr: loopback, NIC: "lo"}}
	}
	var all []Master
	for _, nic := range head.NICs {
		for _, addr := range nic.Addresses {
			all = append(all, Master{
				Addr: addr, NIC: nic.Name, Passed: passedOver(nic),
				reached: addr == head.ReachedAt, speed: nic.SpeedMbps,
			})
		}
	}
	for _, addr := range head.HostnameAddrs {
		if ip, err := netip.ParseAddr(addr); err == nil && ip.IsLoopback() && !known(all, addr) {
			all = append(all, Master{Addr: addr, Passed: fmt.Sprintf(
				"the name %s resolves to it there, but it is loopback: other hosts cannot reach it", head.Hostname)})
		}
	}
	slices.SortStableFunc(all, better)
	return all
}

func known(all []Master, addr string) bool {
	return slices.ContainsFunc(all, func(m Master) bool { return m.Addr == addr })
}

func passedOver(nic facts.NIC) string {
	switch {
	case nic.Loopback:
		return "loopback: other hosts cannot reach it"
	case !nic.Up:
		return "interface " + nic.Name + " is down"
	case nic.Virtual != "":
		return nic.Name + " is " + nic.Virtual + ", which leads to no other host"
	}
	return ""
}

func better(a, b Master) int {
	rank := func(m Master) [4]int {
		return [4]int{flag(m.Passed != ""), flag(!m.reached), flag(!isIPv4(m.Addr)), -m.speed}
	}
	ra, rb := rank(a), rank(b)
	return slices.Compare(ra[:], rb[:])
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func isIPv4(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && ip.Is4()
}

// Candidates are the addresses that may serve, best first.
func (p *Plan) Candidates() []Master {
	var found []Master
	for _, m := range p.Masters {
		if m.Passed == "" {
			found = append(found, m)
		}
	}
	return found
}

// InterfaceOf returns the name of the interface of a host that has an address.
func InterfaceOf(h facts.Host, addr string) string {
	for _, nic := range h.NICs {
		if slices.Contains(nic.Addresses, addr) {
			return nic.Name
		}
	}
	return ""
}

// mainInterface is the interface that a host is reached through, as far as that is known before the ranks meet: the
// one that SSH came to, or the only one.
func mainInterface(h facts.Host) string {
	if nic := InterfaceOf(h, h.ReachedAt); nic != "" && h.ReachedAt != "" {
		return nic
	}
	name := ""
	for _, nic := range h.NICs {
		if passedOver(nic) == "" && len(nic.Addresses) > 0 {
			if name != "" {
				return ""
			}
			name = nic.Name
		}
	}
	return name
}
