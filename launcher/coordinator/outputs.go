package coordinator

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
)

// outputs has agents push the output of ranks to those who read it. The loop owns it.
type outputs struct {
	send    func(host string, command message.Command)
	readers []*reader
	number  int // of the last reader
}

// add adds a reader of the ranks that it names.
func (o *outputs) add(r *reader, m machine) {
	o.readers = slices.DeleteFunc(o.readers, (*reader).hasLeft) // for whom each task would be asked for
	o.readers = append(o.readers, r)
	if m == nil {
		return
	}
	state := m.State()
	for rank, from := range r.ranks {
		if rank >= len(state.Ranks) {
			continue
		}
		out, ok := m.Output(rank)
		if !ok || out.Over && from == message.FromTail {
			continue
		}
		first := out.Last
		if of, known := r.of[rank]; known { // it has come back and wants the attempts that it missed too
			first = max(out.First, min(of, first))
		}
		for attempt := first; attempt <= out.Last; attempt++ {
			r.add(source{attempt, rank}, state.HostOf(rank), r.from(attempt, rank))
		}
	}
	if state.Phase >= run.Wrapping {
		r.end()
	}
	for host := range state.Hosts {
		o.askFor(r, state, host, -1)
	}
}

// begin asks for the output of workers that are being started.
func (o *outputs) begin(state *run.Run, began *run.Began) {
	for _, r := range o.readers {
		hosts := map[int]bool{}
		for _, rank := range began.Ranks {
			if _, wanted := r.ranks[rank]; wanted {
				r.add(source{began.Attempt, rank}, state.HostOf(rank), 0)
				hosts[state.Ranks[rank].Host] = true
			}
		}
		for host := range hosts {
			o.askFor(r, state, host, began.Attempt)
		}
	}
}

// ask asks a host whose link is up again for all output that is read and has not ended.
func (o *outputs) ask(state *run.Run, host int) {
	for _, r := range o.readers {
		o.askFor(r, state, host, -1)
	}
}

// askFor has a host push what a reader still wants of an attempt; -1: of all.
func (o *outputs) askFor(r *reader, state *run.Run, host, only int) {
	for _, attempt := range r.attempts() {
		if only >= 0 && attempt != only {
			continue
		}
		isThere := func(rank int) bool { return rank < len(state.Ranks) && state.Ranks[rank].Host == host }
		if ranks := r.wanted(attempt, isThere); len(ranks) > 0 {
			o.send(state.Hosts[host].Name, message.Command{
				Follow: &message.Follow{Subscription: r.name, Attempt: attempt, Ranks: ranks},
			})
		}
	}
}

// end says to all readers that no attempt will follow.
func (o *outputs) end() {
	for _, r := range o.readers {
		r.end()
	}
}

// allRead reports whether all readers have everything, as far as it still comes: an agent that is gone, or has ended
// by itself, pushes nothing more.
func (o *outputs) allRead(state *run.Run) bool {
	silent := func(rank int) bool {
		h := state.Hosts[state.Ranks[rank].Host]
		return h.Gone || h.Finished
	}
	return !slices.ContainsFunc(o.readers, func(r *reader) bool { return !r.finished(silent) })
}

// nextName names a subscription.
func (o *outputs) nextName() string {
	o.number++
	return fmt.Sprintf("reading-%d", o.number)
}
