package memory

import "fmt"

// mostTimes bounds how many times as many GPUs are thought of: nobody who asks for so many can have more.
const mostTimes = 8

// growth is a way for more ranks to share what there is.
type growth struct {
	to   func(times int) situation
	most int // times as many that are thought of
	how  string
}

// moreGPUs helps only what is split: the smallest multiple that fits, of GPUs that have as little free as the fullest
// of those there are.
func moreGPUs(c situation) (situation, words, bool) {
	for _, g := range c.growths() {
		for times := 2; times <= g.most; times++ {
			to := g.to(times)
			if to.fits() {
				return to, words{fmt.Sprintf("%d GPUs like these instead of %d%s", to.World(), c.World(), g.how), "the GPUs, and communication between more of them"}, true
			}
		}
	}
	return c, words{}, false
}

// growths are the ways for more ranks, the best first: none where each would have a copy.
func (c situation) growths() []growth {
	switch {
	case !c.copies():
		return []growth{{c.withRanks(c.Strategy), mostTimes, ""}}
	case c.Data > 1:
		return nil
	case c.Pipeline > 1:
		return []growth{{c.withStages, mostTimes, " in a longer pipeline"}}
	case c.Tensor > 1:
		// Each layer waits for the slowest link of a tensor group: it stays within an island.
		return []growth{
			{c.withTensor, min(mostTimes, c.island/c.Tensor), " in larger tensor groups"},
			{c.withRanks(FSDP), mostTimes, ", with FSDP over more tensor groups"},
		}
	}
	return []growth{{c.withRanks(FSDP), mostTimes, ", with FSDP over them"}}
}

// withRanks has so many times the data-parallel ranks share one copy.
func (c situation) withRanks(strategy string) func(times int) situation {
	return func(times int) situation {
		to := c
		to.Strategy, to.Data, to.Shard = strategy, c.Data*times, c.Data*times
		return to
	}
}

func (c situation) withTensor(times int) situation {
	c.Tensor *= times
	return c
}

// withStages is a pipeline with so many times the stages.
func (c situation) withStages(times int) situation {
	least := *c.seats[0].free
	for _, s := range c.seats {
		least = min(least, *s.free)
	}
	c.Pipeline *= times
	c.seats = nil
	for stage := range c.Pipeline {
		c.seats = append(c.seats, seat{stages: []int{stage}, free: &least})
	}
	return c
}
