package check

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
)

// visits tells of pairs of hosts between which connections stand and data gets lost. Where
// small packets get through it is a way that takes smaller ones than both interfaces send,
// and no ICMP that would tell (RFC 2923): the first large transfer hangs.
func (j *judge) visits() {
	for a := range j.in.Hosts {
		for b := a + 1; b < len(j.in.Hosts); b++ {
			if v, stuck := j.stuck(a, b); stuck {
				j.gotStuck(a, b, v)
			}
		}
	}
}

func (j *judge) gotStuck(a, b int, v Visit) {
	first, second := j.in.Hosts[a].Name, j.in.Hosts[b].Name
	atA, atB := j.nicTowards(a, b), j.nicTowards(b, a)
	switch {
	case v.Passes == 0:
		j.several(codes.Unreachable, "", UnreachableFix, "%s and %s: connections stand and data does not get through, in packets of whatever size", first, second)
	case atA != nil && atB != nil && v.Passes >= min(atA.MTU, atB.MTU):
		j.several(codes.Unreachable, Warn, "muster check --collective measures how fast they are", "%s and %s: a load of 256 KiB took longer than 5 s between them", first, second)
	default:
		j.several(codes.MTUBlackHole, "", "a switch, tunnel or virtual network between them takes smaller packets than their interfaces send, and does not tell: set an MTU that it takes on both (ip link set dev IF mtu N), or let ICMP through",
			"%s and %s: connections stand and large packets do not get through (those of %d bytes do); the MTU is %s and %s",
			first, second, v.Passes, mtuWord(atA, first), mtuWord(atB, second))
	}
}

// stuck is the visit of two hosts, in either direction, that did not get its load through.
func (j *judge) stuck(a, b int) (Visit, bool) {
	for _, way := range [][2]int{{a, b}, {b, a}} {
		if v, told := j.visit(way[0], way[1]); told && v.Stuck {
			return v, true
		}
	}
	return Visit{}, false
}

func (j *judge) visit(from, of int) (Visit, bool) {
	for _, v := range j.in.Hosts[from].Visits {
		if v.Of == of {
			return v, true
		}
	}
	return Visit{}, false
}

// nicTowards is the interface by which a host is connected with another; nil: not known.
func (j *judge) nicTowards(host, other int) *facts.NIC {
	own := ""
	if v, told := j.visit(host, other); told {
		own = v.From
	}
	if v, told := j.visit(other, host); told && own == "" {
		own = v.Addr
	}
	return interfaceOf(j.in.Hosts[host].Facts, own)
}

func mtuWord(nic *facts.NIC, host string) string {
	if nic == nil || nic.MTU == 0 {
		return "not known on " + host
	}
	return fmt.Sprintf("%d on %s of %s", nic.MTU, nic.Name, host)
}
