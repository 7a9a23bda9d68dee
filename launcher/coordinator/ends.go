package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/rendezvous/link"
)

// ended: a worker ended. The first that ends badly by itself takes the others along.
func (b *brain) ended(e *message.Ended, at link.Instant) {
	r := b.ranks[e.Rank]
	if r.ended != nil {
		return
	}
	r.ended, r.at = e, at
	b.peaked(e.Rank, e.Peaks)
	if e.Evidence != nil && e.Evidence.Observed != nil {
		r.observed = e.Evidence.Observed
		b.told++
	}
	if b.watch != nil {
		b.watch.Ended(r.place)
	}
	if e.Log != "" {
		r.log = e.Log
	}
	failed := failedByItself(e)
	b.sayEnded(e, failed)
	switch {
	case b.places != nil:
		b.endedAlone(e.Rank)
	case !failed || b.phase != running || b.portWasTaken(e):
	default:
		b.stopAfter(e.Rank)
	}
}

// sayEnded tells of a worker's end and of what was strange about it.
func (b *brain) sayEnded(e *message.Ended, failed bool) {
	r, who := b.ranks[e.Rank], b.rankWords(e.Rank)
	host := b.hosts[r.host].name
	b.say(event.Event{Kind: event.Ended, Host: host, Rank: &e.Rank, Log: r.log, Failed: failed,
		Message: fmt.Sprintf("%s on %s %s", who, host, howEnded(e))})
	if e.Error != "" && e.Sent != "" {
		b.warn(host, "%s %s", who, e.Error)
	}
	for _, left := range e.Left {
		b.warn(host, "%s: %s", who, left)
	}
	if e.Cut {
		b.warn(host, "%s: its output was still open %s after its last known process had ended, and was closed", who, "2 s")
	}
}

// causeWait is how long the others are let run on when a rank has failed that only
// noticed another's end: the one with the reason may be about to say it.
const causeWait = 2 * time.Second

// stopAfter stops the others because a rank has failed; at once where it is the reason.
func (b *brain) stopAfter(rank int) {
	v := failure.Classify(b.evidenceOf(rank, b.ranks[rank]).Evidence)
	if !v.Consequence || b.allEnded() {
		b.stopAll(fmt.Sprintf("rank %d failed", rank), false)
		return
	}
	if b.noticed == 0 {
		b.noticed, b.noticedBy = b.now, rank
	}
}

// stopAfterNotice stops the others when the one with the reason has not come forward.
func (b *brain) stopAfterNotice() {
	if b.phase == running && b.noticed != 0 && b.now.Sub(b.noticed) >= causeWait {
		b.stopAll(fmt.Sprintf("rank %d failed", b.noticedBy), false)
	}
}

func failedByItself(e *message.Ended) bool {
	return e.Sent == "" && (e.Error != "" || e.Signal != "" || e.Code != 0)
}

// endedWell is whether a worker ended well, and by itself.
func endedWell(e *message.Ended) bool {
	return e.Sent == "" && e.Error == "" && e.Signal == "" && e.Code == 0
}

// howEnded says in words how a worker ended.
func howEnded(e *message.Ended) string {
	how := fmt.Sprintf("ended with exit status %d", e.Code)
	switch {
	case e.Error != "" && e.Sent != "":
		return e.Error
	case e.Error != "" && e.Code == 0 && e.Signal == "":
		return "could not be started: " + e.Error
	case e.Signal != "":
		how = "was killed by " + e.Signal
	case e.Code == 0:
		how = "ended well"
	}
	if e.Sent != "" {
		how += " after muster had sent " + e.Sent
	}
	return how
}

// stopAll ends all workers.
func (b *brain) stopAll(reason string, kill bool) {
	b.phase = max(b.phase, stopping)
	grace := b.grace
	if kill {
		grace = 0
	}
	b.say(event.Event{Kind: event.Stopping, Grace: grace.Seconds(), ByUser: b.stop != nil, Message: "stopping the workers: " + reason})
	b.sendAll(message.Command{Stop: &message.Stop{Attempt: b.attempt, Kill: kill, Reason: reason}})
}

// stopRequested: the user wants an end.
func (b *brain) stopRequested(s stopRequest) {
	if b.stop == nil || b.stop.drain {
		b.stop = &s
	}
	switch b.phase {
	case gathering:
		b.say(event.Event{Kind: event.Stopping, Message: "ending the run: " + s.reason})
		b.wrapUp()
	case restarting:
		b.phase = stopping
	case running:
		if s.drain && b.places != nil {
			b.drain()
		} else {
			b.stopAll(s.reason, s.kill)
		}
	case stopping:
		if s.kill {
			b.stopAll(s.reason, true)
		}
	}
	b.advance()
}

// launcherLeft: whoever submitted the run watches no more.
func (b *brain) launcherLeft() {
	if b.phase == gathering {
		b.stopRequested(stopRequest{exit: report.ExitHangup, reason: "the launcher has left before the start"})
	}
}

// dropped: the connection to a host ended or was reset.
func (b *brain) dropped(host int, why string) {
	h := b.hosts[host]
	if h.finished {
		h.linked = false
		return
	}
	if h.dropped != "" {
		return
	}
	h.dropped, h.since = why, b.now
	switch b.phase {
	case gathering:
		b.refuse(host, "its agent's connection to the coordinator ended: "+why)
	case running, restarting:
		b.hostLost(host, b.now, class.AgentLost, fmt.Sprintf("the agent on %s died or lost its connection (%s)", h.name, why))
	}
	b.advance()
}

// failing: a host ends its workers by itself.
func (b *brain) failing(host int, f *message.Failing, at link.Instant) {
	h := b.hosts[host]
	h.failing = f.Reason
	switch b.phase {
	case gathering:
		b.refuse(host, "its agent gave up: "+f.Reason)
	case running, restarting:
		b.hostLost(host, at, class.AgentLost, fmt.Sprintf("%s ends its workers: %s", h.name, f.Reason))
	}
}

// keeperDied: the keeper beside this process is no more, and with it who would end
// this host's processes if the agent cannot.
func (b *brain) keeperDied() {
	message := b.hosts[0].name + " ends its workers: its keeper died"
	switch b.phase {
	case gathering:
		b.refusals = append(b.refusals, refusal{host: b.hosts[0].name, code: report.ExitUnreachable, message: "its keeper died"})
		b.wrapUp()
	case running, restarting:
		b.hostLost(0, b.now, class.AgentLost, message)
		if b.places != nil { // this process goes too
			b.lost = b.hosts[0].closed
			b.stopAll(message, false)
		}
	}
}

// hostEmpty: a host's keeper has ended, so nothing of the run is left there.
func (b *brain) hostEmpty(host int) {
	h := b.hosts[host]
	if h.finished || h.gone || b.phase == over {
		return
	}
	b.dropped(host, "its keeper has ended")
	b.giveUp(host)
	b.advance()
}

// giveUp stops waiting for a host.
func (b *brain) giveUp(host int) {
	b.hosts[host].gone = true
	b.giveUpRanks(host)
}

// giveUpRanks stops waiting for the ends of a host's ranks.
func (b *brain) giveUpRanks(host int) {
	for _, r := range b.ranks {
		if r.host == host && r.ended == nil {
			r.lost = true
		}
	}
}

// signal passes a signal on to the leader of each rank.
func (b *brain) signal(name string) {
	if b.phase == running || b.phase == stopping {
		b.say(event.Event{Kind: event.Signalled, Message: name + " is passed on to every rank"})
		b.sendAll(message.Command{Signal: &message.Signal{Attempt: b.attempt, Name: name}})
	}
}

// hostLost: a host is no part of the run any more since at, which ends it for the others.
func (b *brain) hostLost(host int, at link.Instant, how, message string) {
	if b.places != nil {
		b.closeHost(host, at, how, message)
		return
	}
	b.lostAt = at
	b.lost = &report.Cause{Class: how, Message: message, Host: b.hosts[host].name, Attempt: b.attempt}
	b.say(event.Event{Kind: event.Lost, Host: b.hosts[host].name, Message: message, Silent: how == class.HostLost})
	b.stopAll(b.hosts[host].name+" is lost", false)
}

// tick: time has passed. heard returns when a host's newest frame came.
func (b *brain) tick(heard func(host int) (link.Instant, bool)) {
	if b.awaited == 0 {
		b.awaited = b.now
	}
	for i, h := range b.hosts {
		if h.gone || h.finished {
			continue
		}
		last, ok := heard(i)
		switch {
		case !h.linked && b.phase == gathering && b.now.Sub(b.awaited) > b.lease+joinMargin:
			b.refuse(i, "its agent has not joined the coordinator within "+(b.lease+joinMargin).String())
		case h.linked && ok && b.now.Sub(last) >= b.lease:
			b.unheard(i, last)
		}
	}
	b.checkEarlyExit()
	b.stopAfterNotice()
	b.judgeSights()
	b.judgeHang()
	b.advance()
}

// joinMargin is what a host may take longer than the lease to join: it tries addresses
// that may not answer.
const joinMargin = 5 * time.Second

// unheard: a host has been silent for the lease. Its own keeper and agent have ended its
// workers by now.
func (b *brain) unheard(host int, last link.Instant) {
	h := b.hosts[host]
	b.giveUp(host)
	message := fmt.Sprintf("no answer from %s for %v", h.name, b.now.Sub(last).Round(100*time.Millisecond))
	switch b.phase {
	case gathering:
		b.refuse(host, message)
	case running, restarting:
		b.hostLost(host, last, class.HostLost, message)
	default:
		b.say(event.Event{Kind: event.Lost, Host: h.name, Message: message, Silent: true})
		b.lostWhileStopping(h, last, message)
	}
	b.left = append(b.left, h.name+": did not answer any more; its keeper ends its workers within the lease of "+b.lease.String())
}

// refuse ends a run that has not started because a host cannot take part.
func (b *brain) refuse(host int, message string) {
	h := b.hosts[host]
	h.gone = true
	b.refusals = append(b.refusals, refusal{host: h.name, code: report.ExitUnreachable, message: message})
	b.wrapUp()
}

// lostWhileStopping: a host that is silent since before a worker failed was lost first,
// and the failure comes of that. It was due to be heard a heartbeat after its last word.
func (b *brain) lostWhileStopping(h *hostState, last link.Instant, message string) {
	if b.stop == nil && b.lost == nil && b.phase == stopping && b.places == nil {
		b.lostAt = last.Add(link.HeartbeatOf(b.lease))
		b.lost = &report.Cause{Class: class.HostLost, Message: message, Host: h.name, Attempt: b.attempt}
	}
}

// checkEarlyExit tells of ranks that ended well while others run on, which usually wait
// for them in vain, and ends the run when that lasts.
func (b *brain) checkEarlyExit() {
	if b.phase != running || b.places != nil {
		return
	}
	var ended, others []int
	var since link.Instant
	for rank, r := range b.ranks {
		if r.ended == nil {
			others = append(others, rank)
			continue
		}
		if ended = append(ended, rank); since == 0 || r.at < since {
			since = r.at
		}
	}
	if len(ended) == 0 || len(others) == 0 {
		return
	}
	passed := b.now.Sub(since)
	run := "run"
	if len(others) == 1 {
		run = "runs"
	}
	words := fmt.Sprintf("%s ended well %v ago, but %s still %s", b.listRanks(ended), passed.Round(time.Second), b.listRanks(others), run)
	switch {
	case passed >= b.early.Limit:
		b.lost, b.lostAt = &report.Cause{Class: class.EarlyExit, Message: words, Attempt: b.attempt}, b.now
		b.stopAll(words+" (early_exit limit)", false)
	case passed >= b.early.Notice && !b.earlySaid:
		b.earlySaid = true
		b.warn("", "%s; the run fails when that lasts for %v (early_exit { limit })", words, b.early.Limit)
	}
}

// listRanks names ranks, the first few of many.
func (b *brain) listRanks(ranks []int) string {
	const shown = 8
	var names []string
	for _, rank := range ranks[:min(shown, len(ranks))] {
		names = append(names, fmt.Sprint(rank))
	}
	if more := len(ranks) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(ranks) == 1 {
		return b.plan.Unit() + " " + names[0]
	}
	return b.plan.Unit() + "s " + strings.Join(names, ", ")
}

func (b *brain) allEnded() bool {
	for _, r := range b.ranks {
		if r.asked && r.ended == nil && !r.lost {
			return false
		}
	}
	return true
}

// flushed: who reads output has read it, or has left.
func (b *brain) flushed() {
	if b.phase != wrapping {
		return
	}
	b.phase = clearing
	b.beginEmptying()
	b.advance()
}

func (b *brain) tryEnd() {
	if b.phase != finishing {
		return
	}
	for _, h := range b.hosts {
		if h.linked && !h.finished && !h.gone {
			return
		}
	}
	b.phase = over
	r := b.report()
	b.say(event.Event{Kind: event.Over, Message: b.overWords(r), Report: r})
	b.actions = append(b.actions, action{end: r})
}
