package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
	"github.com/muster-dev/muster/rendezvous/link"
)

// How long devices may take to be empty once their workers have ended: the driver frees memory a moment after a
// process is gone.
const (
	Patience    = 10 * time.Second
	clearPace   = 300 * time.Millisecond // between two snapshots
	clearSilent = 15 * time.Second       // after which a host that does not answer is not waited for
	// leftOver is how much more memory than before may be in use on a device that is empty.
	leftOver = 512 << 20 // bytes
)

// Clearing watches devices until they are empty after their workers' end.
type Clearing struct {
	run   *run.Run
	asked int // snapshots so far
	waits []*Wait
}

// Wait is for some devices to be empty.
type Wait struct {
	began    link.Instant
	patience time.Duration // Patience, or longer where a restart waits for others' memory
	others   bool          // those are waited for too that held memory before the run
	only     string        // UUID of the one device that counts; "": all
	hosts    map[int]*clearedHost
}

type clearedHost struct {
	asked int          // number of the snapshot that it owes; 0: none
	next  link.Instant // when to ask again
	done  bool
	still []string // what was in the way when it was last asked
}

// NewClearing is a watch that waits for nothing yet.
func NewClearing(r *run.Run) *Clearing { return &Clearing{run: r} }

func (c *Clearing) begin(patience time.Duration) *Wait {
	w := &Wait{began: c.run.Now, patience: patience, hosts: map[int]*clearedHost{}}
	c.waits = append(c.waits, w)
	return w
}

// All waits for the devices of all hosts that have claimed them. On shared ones others need not be in the way.
func (c *Clearing) All(patience time.Duration) *Wait {
	w := c.begin(max(Patience, patience))
	for i := range c.run.Hosts {
		if claims, _ := c.run.Plan.Claims(i); len(claims) > 0 {
			c.include(w, i)
		}
	}
	return w
}

// Device waits for the device of a place; others as in WithOthers. It is nil where nobody can be in the way.
func (c *Clearing) Device(place plan.Rank, patience time.Duration, others bool) *Wait {
	claims, _ := c.run.Plan.Claims(place.Host)
	shared := len(claims) == 0 || c.run.Job.MPS != nil
	if place.Device == nil || c.run.Phase != run.Running || shared && !others {
		return nil
	}
	w := c.begin(patience)
	w.others, w.only = others, place.Device.UUID
	c.include(w, place.Host)
	return w
}

// WithOthers has a wait go on for memory that others hold, on shared devices too.
func (c *Clearing) WithOthers(w *Wait, patience time.Duration) {
	w.patience, w.others = patience, true
	for i := range c.run.Hosts {
		if w.hosts[i] == nil && len(c.run.Plan.Before(i)) > 0 {
			c.include(w, i)
		}
	}
}

// AtLeast has a wait last that long if devices are not empty before.
func (w *Wait) AtLeast(patience time.Duration) {
	if w != nil {
		w.patience = max(w.patience, patience)
	}
}

func (c *Clearing) include(w *Wait, host int) {
	if h := c.run.Hosts[host]; h.Present() && !h.Finished {
		w.hosts[host] = &clearedHost{}
		c.ask(w, host)
	}
}

func (c *Clearing) ask(w *Wait, host int) {
	c.asked++
	w.hosts[host].asked = c.asked
	c.run.Send(host, message.Command{Look: &message.Look{Number: c.asked}})
}

// Take takes the snapshot that a host was asked for.
func (c *Clearing) Take(host int, s *message.DeviceUsage) {
	for _, w := range c.waits {
		h := w.hosts[host]
		if h == nil || h.done || h.asked != s.Asked {
			continue
		}
		h.asked, h.next = 0, c.run.Now.Add(clearPace)
		before := slices.DeleteFunc(slices.Clone(c.run.Plan.Before(host)),
			func(d plan.Before) bool { return w.only != "" && d.Device.UUID != w.only })
		h.still = inTheWay(before, &s.Usage, w.others)
		h.done = len(h.still) == 0
	}
}

// Over reports whether a wait is over, and asks again where it is time. Time is up for all hosts at once; what is
// then still there is reported.
func (c *Clearing) Over(w *Wait) bool {
	if w == nil {
		return true
	}
	waited := c.run.Now.Sub(w.began)
	all := true
	for i, h := range w.hosts {
		switch {
		case h.done || c.run.Hosts[i].Gone || c.run.Hosts[i].Finished:
		case waited > max(clearSilent, w.patience) || waited > w.patience && h.asked == 0:
			c.giveUp(w, i)
		case h.asked == 0 && c.run.Now >= h.next:
			c.ask(w, i)
			all = false
		default:
			all = false
		}
	}
	if all {
		c.Drop(w)
	}
	return all
}

// Drop waits no more.
func (c *Clearing) Drop(w *Wait) {
	c.waits = slices.DeleteFunc(c.waits, func(o *Wait) bool { return o == w })
}

func (c *Clearing) giveUp(w *Wait, host int) {
	h := w.hosts[host]
	h.done = true
	if h.asked != 0 {
		h.still = []string{"it has not said whether its devices are empty"}
	}
	slices.Sort(h.still)
	waited := c.run.Now.Sub(w.began).Round(time.Second)
	c.run.Warn(c.run.Hosts[host].Name, "%v after the workers' end: %s", waited, strings.Join(h.still, "; "))
}

// inTheWay is what is on devices that was not there before the run; with others, also who holds much of them
// since before.
func inTheWay(before []plan.Before, s *gpu.Usage, others bool) []string {
	if s.Error != "" {
		return []string{"its devices cannot be looked at: " + s.Error}
	}
	var still []string
	for _, d := range before {
		var holders []string
		serving := uint64(0) // what the run's own server of MPS holds goes when it does
		for _, h := range s.Holders {
			if h.UUID != d.Device.UUID {
				continue
			}
			if h.Serves {
				serving += gpu.OrZero(h.Bytes)
				continue
			}
			if h.Kind != "graphics" && (!d.PIDs[h.PID] || others && gpu.OrZero(h.Bytes) > leftOver) {
				holders = append(holders, h.String())
			}
		}
		used, known := s.Used[d.Device.UUID]
		switch {
		case len(holders) > 0:
			still = append(still, fmt.Sprintf("%s is held by %s", d.Device, strings.Join(holders, ", ")))
		case known && used > d.Used+leftOver+serving:
			still = append(still, fmt.Sprintf("%s has %.1f GiB more in use than before the run, "+
				"and no process shows that holds it", d.Device, float64(used-d.Used)/(1<<30)))
		}
	}
	return still
}
