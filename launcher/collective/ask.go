// Package collective is what ranks are asked to measure by muster check --collective: the
// script that they run instead of the job's command, what it is told, and what it says. It
// knows neither how a run is made nor what is concluded.
package collective

import (
	_ "embed"
	"encoding/json"
	"strings"
	"time"
)

// script is given to the user's own Python as an argument: nothing is written on the hosts.
//
//go:embed collective.py
var script string

// Ask is what ranks are told.
type Ask struct {
	Backend string     `json:"backend"` // "nccl" or "gloo"
	Limit   float64    `json:"limit"`   // seconds that a step may take
	Ranks   []int      `json:"ranks"`   // of each host, in the plan's order
	Rounds  [][][2]int `json:"rounds"`  // pairs of hosts that measure at the same time
	Sizes   []int      `json:"sizes"`   // bytes that are summed, the smallest first
	Enough  float64    `json:"enough"`  // seconds from which on a time is exact enough
}

// For is what the hosts of a plan with so many ranks each are asked. With NCCL more bytes
// are summed: its networks are faster; and ranks take longer to meet.
func For(backend string, ranks []int) Ask {
	a := Ask{Backend: backend, Limit: 15, Ranks: ranks, Rounds: Rounds(len(ranks)), Enough: 0.3,
		Sizes: []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}}
	if backend == "nccl" {
		a.Limit, a.Enough = 45, 0.1
		a.Sizes = []int{1 << 20, 16 << 20, 64 << 20, 256 << 20}
	}
	return a
}

// Longest bounds all that the script does, with the time that Python needs to load torch.
func (a Ask) Longest() time.Duration {
	return 90*time.Second + time.Duration(4*a.Limit*float64(len(a.Rounds)+3)*float64(time.Second))
}

// Rounds pairs hosts with their neighbours in a ring, so that each is with two others: in
// two rounds, or three where their number is odd. Two hosts are one pair.
func Rounds(hosts int) [][][2]int {
	switch {
	case hosts < 2:
		return [][][2]int{}
	case hosts == 2:
		return [][][2]int{{{0, 1}}}
	}
	rounds := make([][][2]int, 2+hosts%2)
	for first := range hosts {
		round := first % 2
		if first == hosts-1 && hosts%2 == 1 {
			round = 2
		}
		rounds[round] = append(rounds[round], [2]int{first, (first + 1) % hosts})
	}
	return rounds
}

// Command is what ranks run: the script, by this Python. A leading ~/ is the user's home.
func (a Ask) Command(python string) []string {
	told, err := json.Marshal(a)
	if err != nil {
		panic("numbers and words can be written as JSON: " + err.Error())
	}
	command := []string{python, "-c", script, string(told)}
	if rest, below := strings.CutPrefix(python, "~/"); below {
		command = append([]string{"sh", "-c", `python=$HOME/$1; shift; exec "$python" "$@"`, "sh", rest}, command[1:]...)
	}
	return command
}
