package check

import (
	"math"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
)

// Seconds that clocks may be apart: logs cannot be compared beyond the first; beyond the
// second signed requests to object stores and the like are refused.
const (
	clocksApart = 1.0
	clocksFar   = 30.0
)

// clocks compares the hosts' clocks with each other: with the one in the middle of three
// or more, else with the head host's.
func (j *judge) clocks() {
	var offsets []float64
	reference, against := -1, "those of the others"
	for i, h := range j.in.Hosts {
		if h.ClockOffset != nil {
			offsets = append(offsets, *h.ClockOffset)
			if reference < 0 {
				reference = i
			}
		}
	}
	if len(offsets) < 2 {
		return
	}
	slices.Sort(offsets)
	middle := offsets[len(offsets)/2]
	if len(offsets) == 2 {
		middle = *j.in.Hosts[reference].ClockOffset
		against = j.in.Hosts[reference].Name + "'s"
	}
	for _, h := range j.in.Hosts {
		if h.ClockOffset != nil {
			j.clock(h, *h.ClockOffset-middle, against)
		}
	}
}

func (j *judge) clock(h Host, apart float64, against string) {
	if math.Abs(apart)-h.ClockError <= clocksApart {
		return
	}
	way, means := "ahead of", "their logs cannot be compared by time"
	if apart < 0 {
		way = "behind"
	}
	if math.Abs(apart) > clocksFar {
		means += ", and stores and services may refuse its signatures and tokens"
	}
	j.add(Finding{Code: codes.ClockOffset, Host: h.Name}, "", "have its clock synchronised: timedatectl, chronyc tracking",
		"its clock is %.1f s %s %s: %s", math.Abs(apart), way, against, means)
}
