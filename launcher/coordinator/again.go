package coordinator

import (
	"bytes"
	"fmt"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
)

// portRetries bounds how often a run is started again because its port was taken. It is
// no part of any other budget: the job has done nothing wrong.
const portRetries = 3

// portWasTaken reports whether a rank failed because somebody else took MASTER_PORT
// between muster's letting go and rank 0's listening, and if so has the attempt ended
// and another one follow.
func (b *brain) portWasTaken(e *message.Ended) bool {
	if e.Rank != 0 || b.ports >= portRetries || !saysPortTaken(e.Tail, b.port) {
		return false
	}
	b.ports++
	b.again = fmt.Sprintf("port %d was taken by another program before rank 0 listened on it", b.port)
	b.stopAll(b.again+"; starting again with another one", false)
	return true
}

// saysPortTaken looks for what PyTorch's store and other servers say of a port in use,
// with the port itself: a program's own trouble with another port is its own.
func saysPortTaken(tail []byte, port int) bool {
	inUse := bytes.Contains(tail, []byte("EADDRINUSE")) || bytes.Contains(tail, []byte("ddress already in use"))
	return inUse && bytes.Contains(tail, fmt.Append(nil, port))
}

// mayGoOn reports whether another attempt follows the one that has ended.
func (b *brain) mayGoOn() bool { return b.again != "" && b.stop == nil && b.lost == nil }

// nextAttempt puts the ended attempt away and takes a port for the next.
func (b *brain) nextAttempt() {
	b.putAway(report.Attempt{Class: class.Port, Decision: "restart", Reason: b.again, Changes: map[string]string{"MASTER_PORT": "another"}})
}

// tryRestart starts the next attempt once there is a port.
func (b *brain) tryRestart() {
	if len(b.refusals) > 0 {
		b.phase = wrapping
		b.actions = append(b.actions, action{wrap: true})
		return
	}
	if !b.isEmpty(&b.empty) || b.port == 0 || b.now < b.trials.next || !b.allServed() {
		return
	}
	b.phase, b.begun = running, b.now
	b.say(event.Event{Kind: event.Meeting, Host: b.hosts[0].name, Message: fmt.Sprintf("attempt %d: ranks meet at %s:%d", b.attempt, b.meeting().MasterAddr, b.port)})
	b.beginWatching()
	b.startAll()
}
