//go:build linux

package faulttest

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// search bounds how long a fault looks for what it is to hit: what has not been started
// by then is not there to be hit.
const search = time.Second

// apply lets a fault happen.
func (r *trial) apply(f fault) {
	a := &applied{fault: f, committed: r.happened("committed"), over: r.happened("over") || r.launch.hasEnded()}
	err := r.hit(a)
	if err != nil {
		r.note("%v: %v", f, err)
		return
	}
	a.at = time.Now()
	r.note("%v (committed: %v, over: %v)", f, a.committed, a.over)
	r.faults = append(r.faults, a)
	if f.undo > 0 {
		r.undoing.Go(func() { r.undo(a) })
	}
}

func (r *trial) hit(a *applied) error {
	switch {
	case a.part == launcher:
		if r.launch.hasEnded() {
			return errors.New("it has ended")
		}
		r.launch.signal(signals[a.blow])
		return nil
	case a.part == host:
		return r.hitHost(a.fault)
	case a.part == user:
		return r.act(a.blow)
	case a.part == worker && r.isSweep():
		if err := r.chooseTask(a); err != nil {
			return err
		}
	}
	var found bool
	waits(search, func() bool {
		a.target, found = r.find(a.fault)
		return found || a.committed || r.launch.hasEnded()
	})
	if !found {
		return errors.New("there is none")
	}
	return r.bed.Hosts[a.host].Kill(a.target.PID, signals[a.blow])
}

var signals = map[blow]syscall.Signal{kill: syscall.SIGKILL, stop: syscall.SIGSTOP, interrupt: syscall.SIGINT}

func (r *trial) hitHost(f fault) error {
	h := r.bed.Hosts[f.host]
	switch f.blow {
	case cut:
		return h.Cut()
	case silence:
		return h.CutSilently()
	}
	return h.Stop()
}

// act has the user do something.
func (r *trial) act(b blow) error {
	if r.launch.hasEnded() && b == goAndCome {
		return errors.New("it has ended")
	}
	if b != goAndCome {
		r.stops = append(r.stops, r.start(strings.Fields(string(b) + " -")[1:]...))
		return nil
	}
	r.launch.signal(syscall.SIGHUP)
	waits(r.bound(), r.launch.hasEnded)
	switch {
	case !r.launch.hasEnded():
		r.t.Errorf("the launcher has not left within %v of SIGHUP", r.bound())
	case r.launch.status() == 129:
		r.launch, r.left = r.start("attach", "-"), true
	}
	return nil
}

// find finds the process that a fault is about.
func (r *trial) find(f fault) (*testbed.Process, bool) {
	processes, err := r.bed.Hosts[f.host].Processes()
	if err != nil {
		return nil, false
	}
	for _, p := range processes {
		if r.is(p, f) && p.State != "Z" {
			return &p, true
		}
	}
	return nil, false
}

func (r *trial) is(p testbed.Process, f fault) bool {
	if len(p.Args) == 0 {
		return false
	}
	second := ""
	if len(p.Args) > 1 {
		second = p.Args[1]
	}
	switch f.part {
	case worker:
		if r.isSweep() {
			return p.PID == r.pidOf(f.rank)
		}
		c, ok := r.record(f.rank, 0)
		return ok && int(c.pid) == p.PID
	case agent:
		return p.Args[0] == "muster-agent" && second == "worker"
	case keeper:
		return strings.Contains(p.Args[0], "/muster-agent-") && second == "keeper"
	case coordinator:
		return p.Args[0] == "muster" && second == "coordinator"
	case session:
		return strings.HasPrefix(p.Args[0], "sshd: root")
	}
	return false
}

// undo takes a fault back when its time has come, even if the run has ended.
func (r *trial) undo(a *applied) {
	r.pause(a.undo)
	err := r.takeBack(a)
	a.undo = time.Since(a.at) // as it was: a loaded machine takes longer
	r.note("undone: %v (%v)", a.fault, err)
}

func (r *trial) takeBack(a *applied) error {
	switch a.part {
	case launcher:
		r.launch.signal(syscall.SIGCONT)
		return nil
	case host:
		return r.bed.Hosts[a.host].Heal()
	}
	return r.bed.Hosts[a.host].Kill(a.target.PID, syscall.SIGCONT)
}

// isFit reports whether the bed is as the next seed wants it. Hosts that were cut off may
// remember for a while that they do not reach each other.
func (r *trial) isFit() bool {
	return !r.t.Failed() && !slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == host })
}
