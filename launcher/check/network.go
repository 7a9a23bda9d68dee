package check

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// reach is about who reaches whom.
func (j *judge) reach() {
	if j.in.Plan.Independent {
		return // each has joined the run, and ranks need no more
	}
	for of := range j.in.Hosts {
		addrs := j.tried(of)
		if of == 0 && j.in.MasterAddr != "" {
			addrs = []string{j.in.MasterAddr}
		}
		if len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a string) bool { return j.allReach(of, a) }) {
			j.unreachable(of, addrs)
		}
	}
	if at := j.meetingAt(); at != "" {
		j.meeting(at)
	}
}

// ownName is about hosts whose own name resolves to loopback, as Debian's installer leaves it.
// torch is told an interface to use; JAX on CPUs takes the address of the name (its gloo
// context) and ends with "connection refused" from 127.0.1.1.
func (j *judge) ownName() {
	if len(j.in.Hosts) < 2 || j.in.Job.Program != config.ProgramJAX || j.in.Plan.Backend == "nccl" {
		return
	}
	for _, h := range j.in.Hosts {
		if addrs := h.Facts.HostnameAddrs; len(addrs) > 0 && !slices.ContainsFunc(addrs, leadsOut) {
			j.add(Finding{Code: codes.NameLoopback, Host: h.Name}, "", "write an address that the others reach in front of the name in /etc/hosts there, by root",
				"its name %s resolves to %s there, and JAX on CPUs gives that to the other hosts as its address", h.Facts.Hostname, strings.Join(addrs, ", "))
		}
	}
}

func leadsOut(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && !ip.IsLoopback()
}

// tried are the addresses of a host that others have tried, in the order of preference.
func (j *judge) tried(of int) []string {
	var addrs []string
	for _, h := range j.in.Hosts {
		for _, r := range h.Reach {
			if a := hostPart(r.Addr); r.Of == of && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// hostPart is an address without its port.
func hostPart(addr string) string {
	if full, err := netip.ParseAddrPort(addr); err == nil {
		return full.Addr().String()
	}
	return addr
}

// result is what a host's try to reach an address came to.
func (h Host) result(of int, addr string) (Reach, bool) {
	for _, r := range h.Reach {
		if r.Of == of && hostPart(r.Addr) == addr {
			return r, true
		}
	}
	return Reach{}, false
}

func (j *judge) allReach(of int, addr string) bool {
	for _, h := range j.in.Hosts {
		if r, tried := h.result(of, addr); tried && r.Error != "" {
			return false
		}
	}
	return true
}

// UnreachableFix is what to do where hosts do not reach each other.
const UnreachableFix = "let the hosts reach each other on TCP ports of one network: " +
	"a firewall (nft list ruleset, security groups) or a missing route is the usual reason; ports = \"20000-29999\" narrows what has to be open"

// unreachable shows a table: who reaches which address, and why not.
func (j *judge) unreachable(of int, addrs []string) {
	target := j.in.Hosts[of]
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  FROM")
	for _, a := range addrs {
		fmt.Fprintf(t, "\t%s", withInterface(target.Facts, a))
	}
	fmt.Fprintln(t)
	var cannot []string
	for _, h := range j.in.Hosts {
		row, any, failed := "  "+h.Name, false, false
		for _, a := range addrs {
			r, tried := h.result(of, a)
			row += "\t" + reachWord(r, tried)
			any, failed = any || tried, failed || tried && r.Error != ""
		}
		if any {
			fmt.Fprintln(t, row)
		}
		if failed {
			cannot = append(cannot, h.Name)
		}
	}
	_ = t.Flush() // into memory
	f := Finding{Code: codes.Unreachable, Host: target.Name}
	what := fmt.Sprintf("at %s it is not reached by every host: not by %s", addrs[0], text.List(cannot, mostNamed))
	if len(addrs) > 1 {
		what = "none of its addresses is reached by every host"
	}
	j.add(f, "", UnreachableFix,
		"%s\n%s", what, strings.TrimRight(table.String(), "\n"))
}

func reachWord(r Reach, tried bool) string {
	switch {
	case !tried:
		return "not tried"
	case r.Error != "":
		return "no: " + r.Error
	case r.From != "":
		return "yes, from " + r.From
	}
	return "yes"
}

func withInterface(f facts.Host, addr string) string {
	if nic := interfaceOf(f, addr); nic != nil {
		return fmt.Sprintf("%s (%s)", addr, nic.Name)
	}
	return addr
}

// interfaceOf is the interface that has an address.
func interfaceOf(f facts.Host, addr string) *facts.NIC {
	for i, nic := range f.NICs {
		if slices.Contains(nic.Addresses, addr) {
			return &f.NICs[i]
		}
	}
	return nil
}

// meetingAt is the address of the head host that ranks meet at, as far as that is known.
func (j *judge) meetingAt() string {
	if j.in.MasterAddr != "" {
		return j.in.MasterAddr
	}
	for _, a := range j.tried(0) {
		if j.allReach(0, a) {
			return a
		}
	}
	return ""
}

// meeting is about the interfaces that lead hosts to that address.
func (j *judge) meeting(addr string) {
	mtus := map[int]string{}
	names := map[int]string{}
	for i, h := range j.in.Hosts {
		from := addr
		if i > 0 {
			r, _ := h.result(0, addr)
			from = r.From
		}
		if nic := interfaceOf(h.Facts, from); nic != nil && from != "" && nic.MTU > 0 {
			mtus[i], names[i] = fmt.Sprint(nic.MTU), nic.Name
			j.sameSubnet(h, *nic)
		}
	}
	j.differ(differing{codes.MTUDiffers, "an MTU of", "set the same MTU everywhere (ip link set dev " + firstOf(names) + " mtu N): large packets get lost where a switch does not tell; a job then hangs at its first large transfer",
		mtus, always(Warn)})
}

func firstOf(names map[int]string) string {
	for i := range len(names) {
		if name := names[i]; name != "" {
			return name
		}
	}
	return "IF"
}

// sameSubnet tells of another interface in the subnet of the one that hosts meet by: the
// kernel answers for either on both, so that paths and speeds are a matter of luck.
func (j *judge) sameSubnet(h Host, nic facts.NIC) {
	for _, other := range h.Facts.NICs {
		if other.Name == nic.Name || !other.Up || other.Loopback || other.Virtual != "" {
			continue
		}
		if network, same := sharedNetwork(nic.Networks, other.Networks); same {
			j.add(Finding{Code: codes.SameSubnet, Host: h.Name}, "", "give each interface a subnet of its own, or take one of them down; or set net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 with rules for routing by source",
				"%s and %s are both in %s: connections may come and go by either", nic.Name, other.Name, network)
		}
	}
}

func sharedNetwork(a, b []string) (network string, same bool) {
	for _, x := range a {
		px, err := netip.ParsePrefix(x)
		if err != nil {
			continue
		}
		for _, y := range b {
			if py, err := netip.ParsePrefix(y); err == nil && px.Masked() == py.Masked() {
				return px.Masked().String(), true
			}
		}
	}
	return "", false
}
