package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How long devices may take to be empty once their workers have ended: the driver frees
// memory a moment after a process is gone.
const (
	emptyWait   = 10 * time.Second
	emptyPace   = 300 * time.Millisecond // between two looks
	emptySilent = 15 * time.Second       // after which a host that does not answer is not waited for
	// leftOver is how much more memory than before may be in use on a device that is empty.
	leftOver = 512 << 20 // bytes
)

// emptying is the wait for devices of the plan to be empty after their workers' end.
type emptying struct {
	began link.Instant
	// patience is how long devices may take: emptyWait, or longer where a restart waits for
	// others' memory.
	patience time.Duration
	// others is set where those are waited for too that were there before the run.
	others bool
	only   string // UUID of the one device that counts; "": all
	hosts  map[int]*emptyHost
}

type emptyHost struct {
	asked int          // number of the look that it has not answered; 0: none
	next  link.Instant // when to look again
	done  bool
	still []string // what was in the way when it was last looked at
}

// beginEmptying asks every host that has devices of the plan.
func (b *brain) beginEmptying() {
	// Before the next attempt may begin they are looked at in any case.
	b.empty = &emptying{began: b.now, patience: max(emptyWait, b.trials.next.Sub(b.now)), hosts: map[int]*emptyHost{}}
	for i := range b.hosts {
		claims, _ := b.plan.Claims(i)
		if len(claims) > 0 { // else shared: who is there need not be in the way
			b.includeInEmptying(b.empty, i)
		}
	}
}

// waitForMemory has the next attempt wait for the memory that others hold, on shared
// devices too.
func (b *brain) waitForMemory(patience time.Duration) {
	if b.empty == nil {
		b.empty = &emptying{began: b.now, hosts: map[int]*emptyHost{}}
	}
	b.empty.patience, b.empty.others = patience, true
	for i := range b.hosts {
		if b.empty.hosts[i] == nil && len(b.plan.Before(i)) > 0 {
			b.includeInEmptying(b.empty, i)
		}
	}
}

func (b *brain) includeInEmptying(e *emptying, host int) {
	if h := b.hosts[host]; h.linked && !h.gone && !h.finished {
		e.hosts[host] = &emptyHost{}
		b.askIfEmpty(e, host)
	}
}

func (b *brain) askIfEmpty(e *emptying, host int) {
	b.looks++
	e.hosts[host].asked = b.looks
	b.send(host, message.Command{Look: &message.Look{Number: b.looks}})
}

// emptySeen takes the answer to a look.
func (b *brain) emptySeen(host int, s *message.DeviceUsage) {
	for _, e := range b.emptyings() {
		h := e.hosts[host]
		if h == nil || h.done || h.asked != s.Asked {
			continue
		}
		h.asked, h.next = 0, b.now.Add(emptyPace)
		before := slices.DeleteFunc(slices.Clone(b.plan.Before(host)), func(d plan.Before) bool { return e.only != "" && d.Device.UUID != e.only })
		h.still = notEmpty(before, &s.Usage, e.others)
		h.done = len(h.still) == 0
	}
}

// emptyings are all waits for devices that go on.
func (b *brain) emptyings() []*emptying {
	var all []*emptying
	if b.empty != nil {
		all = append(all, b.empty)
	}
	if b.places != nil {
		for _, p := range b.places.all {
			if p.empty != nil {
				all = append(all, p.empty)
			}
		}
	}
	return all
}

// notEmpty says what is on devices that was not there before the run; with others, also who
// holds much of them since before.
func notEmpty(before []plan.Before, s *gpu.Usage, others bool) []string {
	if s.Error != "" {
		return []string{"its devices cannot be looked at: " + s.Error}
	}
	var still []string
	for _, d := range before {
		var holders []string
		serving := uint64(0) // what the run's own server of MPS holds goes when it does
		for _, held := range s.Holders {
			if held.UUID == d.Device.UUID && held.Serves && held.Bytes != nil {
				serving += *held.Bytes
			}
		}
		for _, held := range s.Holders {
			if held.UUID == d.Device.UUID && held.Kind != "graphics" && !held.Serves && (!d.PIDs[held.PID] || others && held.Bytes != nil && *held.Bytes > leftOver) {
				holders = append(holders, held.String())
			}
		}
		used, known := s.Used[d.Device.UUID]
		switch {
		case len(holders) > 0:
			still = append(still, fmt.Sprintf("%s is held by %s", d.Device, strings.Join(holders, ", ")))
		case known && used > d.Used+leftOver+serving:
			still = append(still, fmt.Sprintf("%s has %.1f GiB more in use than before the run, and no process shows that holds it", d.Device, float64(used-d.Used)/(1<<30)))
		}
	}
	return still
}

// isEmpty reports whether a wait is over, and looks again where it is time. Time is up for
// all hosts at once; what is then still there is said.
func (b *brain) isEmpty(wait **emptying) bool {
	e := *wait
	if e == nil {
		return true
	}
	waited := b.now.Sub(e.began)
	all := true
	for i, h := range e.hosts {
		gone := b.hosts[i].gone || b.hosts[i].finished
		switch {
		case h.done || gone:
		case waited > max(emptySilent, e.patience) || waited > e.patience && h.asked == 0:
			b.giveUpEmptying(e, i)
		case h.asked == 0 && b.now >= h.next:
			b.askIfEmpty(e, i)
			all = false
		default:
			all = false
		}
	}
	if all {
		*wait = nil
	}
	return all
}

func (b *brain) giveUpEmptying(e *emptying, host int) {
	h := e.hosts[host]
	h.done = true
	if h.asked != 0 {
		h.still = []string{"it has not said whether its devices are empty"}
	}
	slices.Sort(h.still)
	b.warn(b.hosts[host].name, "%v after the workers' end: %s", b.now.Sub(e.began).Round(time.Second), strings.Join(h.still, "; "))
}
