package machine

import (
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/muster-dev/muster/launcher/check"
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/launcher/mtu"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous"
)

// maxProbing is up to how many hosts probe each other: the probes grow with the square.
const maxProbing = 32

// preflight checks the hosts before the start.
type preflight struct {
	m       *Machine
	passed  bool // checks have let the run begin
	checked bool
	shown   map[string]int // findings that users have seen, counted by check.Key
	asked   bool           // hosts were asked to open to each other
	sent    bool           // hosts were asked to probe each other
	ports   map[int]*message.Opened
	probes  map[int]*message.Visited
}

// unreachable refuses a run whose head host has no address that all others reach.
func (p *preflight) unreachable(err error) {
	head := p.m.Hosts[0].Name
	f := check.Unreachable(head, err)
	p.m.Keep(&f)
	p.m.Refusals = append(p.m.Refusals, run.Refusal{Host: head, Exit: report.ExitUnreachable, Message: err.Error()})
}

// passes checks the hosts, once all are ready, and reports whether the run may start. What the launcher has shown with
// the plan is not said again, unless it fails.
func (p *preflight) passes() bool {
	m := p.m
	if p.shown == nil {
		p.shown = check.CountKeys(check.OfPlan(m.Plan))
	}
	if p.checked || m.Checking == submission.CheckNone {
		found := check.Libraries(p.input())
		for _, f := range p.fresh(found) {
			m.Warn(f.Host, "%s", f.Message)
		}
		return true
	}
	p.checked = true
	found := check.Start(p.input())
	fresh := p.fresh(found)
	for _, f := range found {
		key, failed := check.Key(f), f.Severity == codes.Fail
		if len(m.Plan.Tasks) > 0 { // checks know places, which no task has yet
			f.Rank = nil
		}
		isFresh := slices.ContainsFunc(fresh, func(o check.Finding) bool { return check.Key(o) == key })
		if !failed && !isFresh {
			m.Keep(&f)
			continue
		}
		m.Find(f)
		if failed {
			m.Refusals = append(m.Refusals, run.Refusal{
				Host: f.Host, Message: f.Words(), Exit: report.ExitRefused, Finding: f.Code,
			})
		}
	}
	return len(m.Refusals) == 0 && m.Checking != submission.CheckOnly
}

// fresh are findings that users have not seen, or fewer of about the same. From now on they have.
func (p *preflight) fresh(found []check.Finding) []check.Finding {
	counts := check.CountKeys(found)
	fresh := slices.DeleteFunc(slices.Clone(found), func(f check.Finding) bool {
		return counts[check.Key(f)] <= p.shown[check.Key(f)]
	})
	maps.Copy(p.shown, counts)
	return fresh
}

func (p *preflight) input() check.Input {
	m := p.m
	in := check.Input{Job: m.Job, Plan: m.Plan, Meeting: m.PlanMeeting(), LimitsRaised: true}
	for i, h := range m.Hosts {
		one := check.Host{Name: h.Name, Facts: m.Plan.Facts[i], Software: h.Software}
		if i < len(m.Clocks) {
			one.ClockOffset, one.ClockError = &m.Clocks[i].Offset, m.Clocks[i].Error
		}
		for _, candidate := range m.Plan.Candidates() {
			if r, tried := m.Meeting.Reach(i, candidate.Addr); tried {
				one.Reach = append(one.Reach, check.Reach{Addr: r.Addr, From: r.Local, Error: r.Error})
			}
		}
		probes := p.probesBy(i)
		for of := range m.Hosts {
			v, made := probes[of]
			if !made {
				continue
			}
			if of > 0 { // how the head host is reached was seen by every address of it
				one.Reach = append(one.Reach, check.Reach{Of: of, Addr: v.Addr, From: v.Local, Error: v.Error})
			}
			one.Visits = append(one.Visits, check.Visit{
				Of: of, Addr: rendezvous.Host(v.Addr), From: v.Local, Error: v.Error, Stuck: v.Stuck, Passes: v.Passes,
			})
		}
		in.Hosts = append(in.Hosts, one)
	}
	return in
}

// probed has every host probe every other where hosts are only checked, and reports whether all that can be known of
// that is. Hosts bound their probes themselves; one that is lost is not waited for.
func (p *preflight) probed() bool {
	m := p.m
	n := len(m.Hosts)
	if m.Checking != submission.CheckOnly || n < 2 || n > maxProbing || len(m.Pins) < n || m.Plan.Backend == "none" ||
		m.Plan.Independent {
		return true
	}
	if !p.asked {
		p.asked, p.ports, p.probes = true, map[int]*message.Opened{}, map[int]*message.Visited{}
		for i := range m.Hosts {
			m.Send(i, message.Command{Open: &message.Open{First: m.FirstPort, Last: m.LastPort, Pins: m.Pins}})
		}
	}
	if !p.sent && p.allOf(func(host int) bool { return p.ports[host] != nil }) {
		p.sent = true
		for i := range m.Hosts {
			m.Send(i, message.Command{Visit: p.probesOf(i)})
		}
	}
	return p.sent && p.allOf(func(host int) bool { return p.probes[host] != nil })
}

// opened: a host has opened to others, or could not.
func (p *preflight) opened(host int, o *message.Opened) {
	if !p.asked {
		return
	}
	p.ports[host] = o
	if o.Error != "" {
		p.m.Warn(p.m.Hosts[host].Name, "whether all others reach it is not checked: %s", o.Error)
	}
}

func (p *preflight) visited(host int, v *message.Visited) {
	if p.asked {
		p.probes[host] = v
	}
}

// allOf is whether something holds of every host that takes part.
func (p *preflight) allOf(holds func(host int) bool) bool {
	for i, h := range p.m.Hosts {
		if !h.Gone && !holds(i) {
			return false
		}
	}
	return true
}

// probesOf are a host's probes of all others that have opened, at the address by which they came to the head host:
// the one that ranks use.
func (p *preflight) probesOf(host int) *message.Visit {
	command := &message.Visit{}
	for i := range p.m.Hosts {
		opened := p.ports[i]
		addr := p.m.Meeting.Local(i)
		if i == 0 {
			addr = p.m.Meeting.Master()
		}
		if i != host && opened != nil && opened.Error == "" && addr != "" {
			command.Peers = append(command.Peers, message.Peer{
				Host: i, Pin: p.m.Pins[i], Addr: net.JoinHostPort(addr, strconv.Itoa(opened.Port)),
			})
		}
	}
	return command
}

// probesBy are the results of a host's probes.
func (p *preflight) probesBy(host int) map[int]mtu.Result {
	found := map[int]mtu.Result{}
	if made := p.probes[host]; made != nil {
		for _, v := range made.Results {
			found[v.Host] = v.Result
		}
	}
	return found
}
