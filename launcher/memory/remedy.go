package memory

import (
	"fmt"
	"slices"
	"strings"
)

// Remedy is a change, and what would be needed with it.
type Remedy struct {
	Change string `json:"change"`
	Cost   string `json:"cost"`
	Need   uint64 `json:"need"`         // bytes of the GPU that is then the fullest: the least
	Max    uint64 `json:"need_most"`    // with the most that NCCL may take
	Free   uint64 `json:"free"`         // bytes of that GPU
	Fits   bool   `json:"fits"`         // on every GPU and host, and not only just
	Other  bool   `json:"trains_other"` // another model comes out than was asked for
	// Offloaded is what the host that is then shortest of memory keeps; nil where nothing is offloaded.
	Offloaded *Offloaded `json:"offloaded,omitempty"`
}

// situation is a job and its GPUs, alike ones once. It is a value: changes make new ones.
type situation struct {
	setup
	seats  []seat
	hosts  []Host
	island int // as Layout has it
}

// situationOf is the situation of a job: of GPUs with the same stages the one with the least free memory counts.
func situationOf(s setup, l Layout) situation {
	at := map[string]int{}
	c := situation{setup: s, hosts: l.Hosts, island: l.Island}
	for _, card := range l.Cards {
		if card.Free == nil {
			continue
		}
		found := seatOf(s, card)
		key := fmt.Sprint(found.stages)
		if i, known := at[key]; !known {
			at[key] = len(c.seats)
			c.seats = append(c.seats, found)
		} else if *found.free < *c.seats[i].free {
			c.seats[i] = found
		}
	}
	return c
}

// outcome is about the GPU that is shortest of memory.
func (c situation) outcome() Remedy {
	stages := c.stages()
	r := Remedy{Offloaded: offloaded(stages, c.hosts)}
	r.Fits = r.Offloaded.Fits()
	left := int64(1) << 62
	for _, s := range c.seats {
		low, high := s.need(stages)
		r.Fits = r.Fits && s.verdict(stages) == Fits
		if rest := int64(*s.free) - int64(low); rest < left {
			left, r.Need, r.Max, r.Free = rest, low, high, *s.free
		}
	}
	return r
}

func (c situation) fits() bool { return c.outcome().Fits }

// changed is a situation after a change, what the change is and what it costs. The zero value is that of a change
// that does not apply.
type changed struct {
	situation
	what, cost string
}

// price is what a kind of change costs, the lowest first: whatever is enough at a lower price, be it several changes
// together, goes before what costs more.
type price int

const (
	here    price = iota // the GPUs that there are do it
	slow                 // they do it much slower
	growing              // more GPUs do it
	another              // another model comes out than was asked for
)

// option is something that can be changed.
type option struct {
	change func(situation) changed
	price
	// seeks is set where the change goes as far as it has to: it comes after those that have one size.
	seeks bool
}

// options are all, the least costly first: what costs nothing; what costs time; what changes how the optimizer works,
// or the program; what makes steps slow; what costs machines; what trains less.
var options = []option{
	{change: freeCards},
	{change: bucketView},
	{change: fusedStep},
	{change: oneForwardOneBackward},
	{change: sequenceParallel},
	{change: smallerMicroBatch, seeks: true},
	{change: fewerMicroBatches, seeks: true},
	{change: checkpointing},
	{change: widerShards, seeks: true},
	{change: shardedOptimizer},
	{change: eightBit},
	{change: shardedGradients},
	{change: shardedModel},
	{change: offloading, price: slow},
	{change: moreGPUs, price: growing, seeks: true},
	{change: adapters, price: another},
	{change: fourBit, price: another},
}

// remedies are the changes that lessen the need, each by itself; and, where several are enough together at a lower
// price than any by itself, these.
func (c situation) remedies() (alone []Remedy, together *Remedy) {
	now := c.outcome().Need
	enough := map[price]bool{}
	for _, o := range options {
		if to := o.change(c); to.what != "" {
			r := remedyOf([]option{o}, to.situation, []changed{to})
			if r.Need < now || r.Fits {
				alone = append(alone, r)
				enough[o.price] = enough[o.price] || r.Fits
			}
		}
	}
	for limit := here; limit <= another && !enough[limit] && together == nil; limit++ {
		payable := slices.DeleteFunc(slices.Clone(options), func(o option) bool { return o.price > limit })
		together = c.together(payable)
	}
	return alone, together
}

// remedyOf is what applied changes come to.
func remedyOf(of []option, to situation, steps []changed) Remedy {
	r := to.outcome()
	r.Other = slices.ContainsFunc(of, func(o option) bool { return o.price == another })
	var changes, costs []string
	for _, step := range steps {
		changes = append(changes, step.what)
		if !slices.Contains(costs, step.cost) {
			costs = append(costs, step.cost)
		}
	}
	r.Change, r.Cost = strings.Join(changes, "; "), strings.Join(costs, "; ")
	return r
}

// together adds change to change until it fits, and then leaves out those, the costliest first, without which it
// still fits on as many GPUs. nil: that is not enough.
func (c situation) together(of []option) *Remedy {
	var chosen []option
	for _, o := range of {
		chosen = append(chosen, o)
		if whole, _ := c.all(chosen); whole.fits() {
			r := c.fewest(chosen, whole.World())
			return &r
		}
	}
	return nil
}

func (c situation) fewest(chosen []option, world int) Remedy {
	for at := len(chosen) - 1; at >= 0; at-- {
		fewer := slices.Delete(slices.Clone(chosen), at, at+1)
		if to, _ := c.all(fewer); to.fits() && to.World() <= world {
			chosen = fewer
		}
	}
	to, steps := c.all(chosen)
	return remedyOf(chosen, to, steps)
}

// all applies changes one after the other, those that go as far as they have to last.
func (c situation) all(of []option) (situation, []changed) {
	var steps []changed
	for _, seeking := range []bool{false, true} {
		for _, o := range of {
			if o.seeks != seeking {
				continue
			}
			if to := o.change(c); to.what != "" {
				c, steps = to.situation, append(steps, to)
			}
		}
	}
	return c, steps
}
