package agent

import (
	"context"
	"strings"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/version"
	"github.com/muster-dev/muster/rendezvous/link"
)

// introduce looks at the devices and says the first words. It runs beside the loop: a
// driver can take its time.
func (a *agent) introduce() {
	host := a.look.facts(a.facts, a.place, a.plugins)
	a.words.say(message.FromAgent{Hello: &message.Hello{Version: version.String(), Pin: a.identity.Pin(), Facts: host, Clock: clock()}})
}

// join links to the coordinator at the first address that proves itself and tells
// it what this host reaches.
func (a *agent) join(j *message.Join) {
	a.joining, a.name = true, j.Name
	go func() {
		var results []link.Reach
		linked := false
		for r := range link.Probe(context.Background(), a.identity, j.Coordinator, j.Addrs) {
			results = append(results, r)
			snapshot := append([]link.Reach(nil), results...)
			complete := len(results) == len(j.Addrs)
			if !linked && r.Error == "" {
				linked = true
				a.loop.Post(func() { a.link(j, r.Addr) })
			}
			if linked {
				a.loop.Post(func() {
					a.loop.Report(message.Update{Reached: &message.Reached{Results: snapshot, Complete: complete}})
				})
			}
		}
		if !linked {
			a.loop.Post(func() { a.unreachable(j.Head, results) })
		}
	}()
}

func (a *agent) link(j *message.Join, addr string) {
	member, err := link.Join(a.identity, j.Coordinator, addr, a.lease)
	if err != nil {
		a.words.say(message.FromAgent{Error: err.Error()})
		a.finished = true
		return
	}
	a.loop.Join(member)
}

func (a *agent) unreachable(head string, results []link.Reach) {
	var tried []string
	for _, r := range results {
		tried = append(tried, r.Addr+": "+r.Error)
	}
	a.words.say(message.FromAgent{Error: "cannot reach the head host " + head + ": " + strings.Join(tried, "; ")})
	a.finished = true
}
