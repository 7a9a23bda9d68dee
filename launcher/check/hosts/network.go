package hosts

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
)

// UnreachableFix is what to do where hosts do not reach each other.
const UnreachableFix = "let the hosts reach each other on TCP ports of one network: " +
	"a firewall (nft list ruleset, security groups) or a missing route is the usual reason; ports = \"20000-29999\" narrows what has to be open"

// reach is about who reaches whom. Independent ranks need no more than to have joined the run.
func reach(in *rule.Input) (found rule.Findings) {
	for of := range in.Hosts {
		addrs := tried(in, of)
		if of == 0 && in.Meeting.MasterAddr != "" {
			addrs = []string{in.Meeting.MasterAddr}
		}
		isReached := slices.ContainsFunc(addrs, func(a string) bool { return allReach(in, of, a) })
		if !in.Plan.Independent && len(addrs) > 0 && !isReached {
			found = append(found, unreachable(in, of, addrs)...)
		}
	}
	return found
}

// tried are the addresses of a host that others have tried, in the order of preference.
func tried(in *rule.Input, of int) []string {
	var addrs []string
	for _, h := range in.Hosts {
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
func result(h rule.Host, of int, addr string) (rule.Reach, bool) {
	at := slices.IndexFunc(h.Reach, func(r rule.Reach) bool { return r.Of == of && hostPart(r.Addr) == addr })
	if at < 0 {
		return rule.Reach{}, false
	}
	return h.Reach[at], true
}

func allReach(in *rule.Input, of int, addr string) bool {
	return !slices.ContainsFunc(in.Hosts, func(h rule.Host) bool {
		r, tried := result(h, of, addr)
		return tried && r.Error != ""
	})
}

// unreachable shows a table: who reaches which address, and why not.
func unreachable(in *rule.Input, of int, addrs []string) rule.Findings {
	target := &in.Hosts[of]
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  FROM")
	for _, a := range addrs {
		if nic := interfaceOf(target.Facts, a); nic != nil {
			a += " (" + nic.Name + ")"
		}
		fmt.Fprintf(t, "\t%s", a)
	}
	fmt.Fprintln(t)
	var cannot []string
	for _, h := range in.Hosts {
		row, any, failed := "  "+h.Name, false, false
		for _, a := range addrs {
			r, tried := result(h, of, a)
			row += "\t" + describeReach(r, tried)
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
	what := fmt.Sprintf("at %s it is not reached by every host: not by %s", addrs[0], rule.List(cannot))
	if len(addrs) > 1 {
		what = "none of its addresses is reached by every host"
	}
	return target.Find(UnreachableFix, "%s\n%s", what, strings.TrimRight(table.String(), "\n"))
}

func describeReach(r rule.Reach, tried bool) string {
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

// interfaceOf is the interface that has an address; nil: not known.
func interfaceOf(f facts.Host, addr string) *facts.NIC {
	at := slices.IndexFunc(f.NICs, func(nic facts.NIC) bool { return addr != "" && slices.Contains(nic.Addresses, addr) })
	if at < 0 {
		return nil
	}
	return &f.NICs[at]
}

// meetingBy are the interfaces that lead hosts to the address of the head host that ranks meet at; nil where that is
// not known.
func meetingBy(in *rule.Input) []*facts.NIC {
	by := make([]*facts.NIC, len(in.Hosts))
	addr := in.Meeting.MasterAddr
	for _, a := range tried(in, 0) {
		if addr == "" && allReach(in, 0, a) {
			addr = a
		}
	}
	if in.Plan.Independent {
		return by
	}
	for i, h := range in.Hosts {
		from := addr
		if i > 0 {
			r, _ := result(h, 0, addr)
			from = r.From
		}
		by[i] = interfaceOf(h.Facts, from)
	}
	return by
}

func mtus(in *rule.Input) rule.Findings {
	by := meetingBy(in)
	name := "IF"
	for _, nic := range slices.Backward(by) {
		if nic != nil && nic.MTU > 0 {
			name = nic.Name
		}
	}
	return differ(in, differing{"an MTU of", "set the same MTU everywhere (ip link set dev " + name + " mtu N): large packets get lost where a switch does not tell; a job then hangs at its first large transfer",
		each(in, func(h *rule.Host) string {
			if nic := by[h.At]; nic != nil && nic.MTU > 0 {
				return fmt.Sprint(nic.MTU)
			}
			return ""
		}), rule.Warn, rule.Warn})
}

// sameSubnets tells of another interface in the subnet of the one that hosts meet by: the kernel answers for either on
// both, so that paths and speeds are a matter of luck.
func sameSubnets(in *rule.Input) (found rule.Findings) {
	for i, nic := range meetingBy(in) {
		if nic == nil || nic.MTU == 0 {
			continue
		}
		for _, other := range in.Hosts[i].Facts.NICs {
			network := sharedNetwork(nic.Networks, other.Networks)
			if network == "" || other.Name == nic.Name || !other.Up || other.Loopback || other.Virtual != "" {
				continue
			}
			found = append(found, in.Hosts[i].Find("give each interface a subnet of its own, or take one of them down; or set net.ipv4.conf.all.arp_ignore=1 and arp_announce=2 with rules for routing by source",
				"%s and %s are both in %s: connections may come and go by either", nic.Name, other.Name, network)...)
		}
	}
	return found
}

func sharedNetwork(a, b []string) string {
	for _, x := range a {
		px, err := netip.ParsePrefix(x)
		for _, y := range b {
			if py, err2 := netip.ParsePrefix(y); err == nil && err2 == nil && px.Masked() == py.Masked() {
				return px.Masked().String()
			}
		}
	}
	return ""
}

// ownName is about hosts whose own name resolves to loopback, as Debian's installer leaves it. torch is told an
// interface to use; JAX on CPUs takes the address of the name (its gloo context) and ends with "connection refused"
// from 127.0.1.1.
func ownName(h *rule.Host) rule.Findings {
	addrs := h.Facts.HostnameAddrs
	leadsOut := slices.ContainsFunc(addrs, func(addr string) bool {
		ip, err := netip.ParseAddr(addr)
		return err == nil && !ip.IsLoopback()
	})
	if isOneHost(h) || h.In.Job.Program != config.ProgramJAX || h.In.Plan.Backend == "nccl" || len(addrs) == 0 || leadsOut {
		return nil
	}
	return h.Find("write an address that the others reach in front of the name in /etc/hosts there, by root",
		"its name %s resolves to %s there, and JAX on CPUs gives that to the other hosts as its address", h.Facts.Hostname, strings.Join(addrs, ", "))
}

// visits tells of pairs of hosts between which connections stand and data gets lost. Where small packets get through it
// is a way that takes smaller ones than both interfaces send, and no ICMP that would tell (RFC 2923): the first large
// transfer hangs.
func visits(in *rule.Input) (found rule.Findings) {
	for a := range in.Hosts {
		for b := a + 1; b < len(in.Hosts); b++ {
			for _, v := range []rule.Visit{visit(in, a, b), visit(in, b, a)} {
				if v.Stuck {
					found = append(found, stuck(in, a, b, v)...)
					break
				}
			}
		}
	}
	return found
}

func stuck(in *rule.Input, a, b int, v rule.Visit) rule.Findings {
	first, second := in.Hosts[a].Name, in.Hosts[b].Name
	atA, atB := nicTowards(in, a, b), nicTowards(in, b, a)
	switch {
	case v.Passes == 0:
		return in.Find(UnreachableFix, "%s and %s: connections stand and data does not get through, in packets of whatever size", first, second).Of(codes.Unreachable)
	case atA != nil && atB != nil && v.Passes >= min(atA.MTU, atB.MTU):
		return in.Find("muster check --collective measures how fast they are", "%s and %s: a load of 256 KiB took longer than 5 s between them", first, second).Of(codes.Unreachable).As(rule.Warn)
	}
	return in.Find("a switch, tunnel or virtual network between them takes smaller packets than their interfaces send, and does not tell: set an MTU that it takes on both (ip link set dev IF mtu N), or let ICMP through",
		"%s and %s: connections stand and large packets do not get through (those of %d bytes do); the MTU is %s and %s",
		first, second, v.Passes, describeMTU(atA, first), describeMTU(atB, second)).Of(codes.MTUBlackHole)
}

// visit is that of a host to another; zero where there was none.
func visit(in *rule.Input, from, of int) rule.Visit {
	for _, v := range in.Hosts[from].Visits {
		if v.Of == of {
			return v
		}
	}
	return rule.Visit{}
}

// nicTowards is the interface by which a host is connected with another; nil: not known.
func nicTowards(in *rule.Input, host, other int) *facts.NIC {
	return interfaceOf(in.Hosts[host].Facts, cmp.Or(visit(in, host, other).From, visit(in, other, host).Addr))
}

func describeMTU(nic *facts.NIC, host string) string {
	if nic == nil || nic.MTU == 0 {
		return "not known on " + host
	}
	return fmt.Sprintf("%d on %s of %s", nic.MTU, nic.Name, host)
}
