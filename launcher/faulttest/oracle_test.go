//go:build linux

package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ending is a way in which a run may end.
type ending struct {
	exits []int
	words string // that the final screen holds; names whom or what the first cause is about
}

func (e ending) fits(exit int, words string) bool {
	return slices.Contains(e.exits, exit) && strings.Contains(words, e.words)
}

var (
	endsByUser  = ending{[]int{130}, "Ctrl-C"}
	shortEnough = lease / 3 // a part may be stopped for so long, and nobody minds
)

// verdict is what may come of a run.
type verdict struct {
	endings []ending
	certain bool // it ends by itself, without anybody asking for it
	unsure  bool // it may end by itself
}

func (v *verdict) add(other verdict) {
	v.endings = append(v.endings, other.endings...)
	v.certain = v.certain || other.certain
	v.unsure = v.unsure || other.unsure
}

// expect says what may come of everything that has happened.
func (r *trial) expect() verdict {
	if r.isSweep() {
		return r.expectOfSweep()
	}
	var v verdict
	for _, a := range r.faults {
		v.add(r.outcome(a))
	}
	if r.asked {
		v.add(verdict{endings: []ending{endsByUser}, certain: true})
	}
	if !v.certain {
		v.endings = append(v.endings, r.endsWell())
	}
	return v
}

func (r *trial) endsWell() ending {
	return ending{[]int{0}, fmt.Sprintf("all %ss ended well", r.unit())}
}

func (r *trial) unit() string {
	if r.isSweep() {
		return "task"
	}
	return "rank"
}

// outcome is what may come of one fault. What hits a run before its commit may take effect
// after it.
func (r *trial) outcome(a *applied) verdict {
	switch {
	case a.over:
		v := a.afterCommit()
		return verdict{endings: append(v.endings, a.beforeCommit().endings...)}
	case a.when == stopping || r.asked && a.part == worker:
		return a.whileStopping()
	case a.committed:
		return a.afterCommit()
	case !r.happened("committed"):
		return a.beforeCommit()
	}
	early, late := a.beforeCommit(), a.afterCommit()
	return verdict{
		endings: append(early.endings, late.endings...),
		certain: early.certain && late.certain,
		unsure:  early.unsure || late.unsure || early.certain || late.certain,
	}
}

// lasts reports whether nobody can take the fault for a short stop.
func (f fault) lasts() bool { return f.disables() }

// grade turns an ending into a verdict, by how long the fault lasts.
func (f fault) grade(e ...ending) verdict {
	switch {
	case f.lasts():
		return verdict{endings: e, certain: true}
	case f.undo > shortEnough || f.part == host:
		return verdict{endings: e, unsure: true}
	}
	return verdict{}
}

func (f fault) beforeCommit() verdict {
	name := hosts[f.host]
	switch f.part {
	case agent, keeper:
		return f.grade(ending{[]int{69}, name})
	case host:
		return f.hostLost()
	case coordinator:
		return f.grade(ending{[]int{69, 70}, name})
	case session:
		v := verdict{endings: []ending{{[]int{69}, name}}, unsure: true}
		v.certain = f.host == 0
		return v
	case launcher:
		if f.blow == interrupt {
			v := verdict{endings: []ending{endsByUser}, certain: true}
			if f.when == connecting { // before it has begun to take signals
				v.endings = append(v.endings, ending{[]int{-2}, ""})
			}
			return v
		}
		if f.undo > shortEnough {
			return verdict{endings: []ending{{[]int{69, 129}, ""}}, unsure: true}
		}
	}
	return verdict{}
}

func (f fault) afterCommit() verdict {
	name := hosts[f.host]
	switch f.part {
	case worker:
		if f.blow == kill {
			return f.grade(ending{[]int{137}, fmt.Sprintf("rank %d on %s was killed by SIGKILL", f.rank, name)})
		}
	case agent, keeper:
		return f.grade(ending{[]int{69}, name})
	case host:
		return f.hostLost()
	case coordinator:
		v := f.grade(ending{[]int{70}, "coordinator"})
		if f.blow == stop { // the agents cannot know why it is silent
			v.endings = append(v.endings, ending{[]int{69}, "coordinator"})
		}
		return v
	case launcher:
		if f.blow == interrupt {
			return verdict{endings: []ending{endsByUser}, certain: true}
		}
	}
	return verdict{}
}

// hostLost: where the head host is cut off, it takes the others for lost and they the
// coordinator, and whose word the user gets depends on when it is healed.
func (f fault) hostLost() verdict {
	if f.host == 0 {
		return f.grade(ending{[]int{69}, hosts[0]}, ending{[]int{69}, "no answer from"})
	}
	return f.grade(ending{[]int{69}, hosts[f.host]})
}

// whileStopping: what happens to workers then is no cause, unless it was first.
func (f fault) whileStopping() verdict {
	v := f.afterCommit()
	if v.certain = false; f.part == worker {
		v.endings = append(v.endings, endsByUser)
	}
	return v
}

// isGone reports whether the launcher sees the end no more.
func (r *trial) isGone() bool {
	return slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == launcher && a.disables() })
}

// hasSuspended reports whether a worker was stopped and stays so: it cannot end by itself.
func (r *trial) hasSuspended() bool {
	return slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == worker && a.blow == stop && a.undo == 0 })
}

// slack is what a loaded machine may take longer.
const slack = 12 * time.Second

// returning is how long a launcher may try to come back to a head host that it has lost:
// five times, under the tests' ConnectTimeout.
const returning = 5 * (3*time.Second + 2*time.Second)

// unread is how long a run waits for a launcher that takes nothing of what workers have
// written.
const unread = 10 * time.Second

// bound is how long the end may take once nothing more happens.
func (r *trial) bound() time.Duration {
	d := lease + r.s.grace + slack + r.s.work()
	if slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == host && a.host == 0 }) {
		d += returning
	}
	if slices.ContainsFunc(r.faults, func(a *applied) bool { return a.part == launcher && a.blow == stop && a.undo == 0 }) {
		d += unread
	}
	return d
}
