package coordinator

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/mtu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// checkingDrill is three hosts that are only checked, ready and waiting for each other.
func checkingDrill(t *testing.T) *drill {
	d := newDrillOf(t, "")
	d.b.Checking, d.b.Pins = submission.CheckOnly, []link.Pin{"p0", "p1", "p2"}
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	return d
}

// visits are the orders to visit that were sent, by host.
func (d *drill) visits() map[int][]message.Peer {
	found := map[int][]message.Peer{}
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Visit != nil {
			found[a.Send.Host] = a.Send.Command.Visit.Peers
		}
	}
	return found
}

func (d *drill) opens(host, port int) {
	d.news(host, message.Update{Opened: &message.Opened{Port: port}})
}

func TestHostsThatAreOnlyCheckedVisitEachOther(t *testing.T) {
	d := checkingDrill(t)
	d.opens(0, 21000)
	d.opens(1, 21001)
	if len(d.visits()) > 0 {
		t.Error("hosts visit one that has not opened")
	}
	d.opens(2, 21002)
	if got := fmt.Sprint(d.visits()[2]); got != "[{0 p0 10.0.0.1:21000} {1 p1 10.0.0.1:21001}]" { // each says that it came from there
		t.Errorf("host c visits %s", got)
	}
	d.news(0, message.Update{Visited: &message.Visited{}})
	d.news(1, message.Update{Visited: &message.Visited{Results: []message.VisitOf{{Host: 2, Result: mtu.Result{Reach: link.Reach{Addr: "10.0.0.3:21002", Error: "no route to host"}}}}}})
	if d.b.Phase != run.Gathering {
		t.Fatal("a host that visits is not waited for")
	}
	d.news(2, message.Update{Visited: &message.Visited{}})
	found := d.b.Record.Findings
	if d.b.Phase != run.Finishing || len(found) == 0 || found[len(found)-1].Code != codes.Unreachable && found[0].Code != codes.Unreachable {
		t.Errorf("phase %v, findings %+v", d.b.Phase, found)
	}
}

// A run does not wait for visits, and a host that cannot open is not visited.
func TestVisitsHoldNoRunUp(t *testing.T) {
	d := newDrill(t).run()
	if d.b.Phase != run.Running || len(d.sent(func(c message.Command) bool { return c.Open != nil })) > 0 {
		t.Errorf("phase %v", d.b.Phase)
	}
	d = checkingDrill(t)
	d.news(0, message.Update{Opened: &message.Opened{Error: "no port is free"}})
	d.opens(1, 21001)
	d.opens(2, 21002)
	if got := d.visits(); len(got[1]) != 1 || got[1][0].Host != 2 {
		t.Errorf("visits %+v", got)
	}
}
