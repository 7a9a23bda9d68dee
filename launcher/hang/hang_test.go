package hang

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/observe"
)

func ago(seconds float64) *float64 { return &seconds }

// still is a rank without a device in which nothing has moved for so many seconds.
func still(rank int, seconds float64) Seen {
	return Seen{Pulse: Pulse{Rank: rank, Age: 1000, Output: seconds, Told: seconds, CPU: seconds, Files: seconds}, Host: "a", Mark: observe.Nowhere}
}

// onGPU is one whose device was last at work so long ago.
func onGPU(rank int, seconds, device float64, spins bool) Seen {
	s := still(rank, seconds)
	s.Device, s.Worked, s.Spins, s.CPU = ago(device), true, spins, 0 // waiting for a GPU spins on the CPU
	return s
}

func with(s Seen, change func(*Seen)) Seen {
	change(&s)
	return s
}

// Whoever is silent and does nothing at all hangs; what is only silent does not.
func TestOnlyWhatDoesNothingAtAllHangs(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []Seen
		want bool
	}{
		{"all ranks on CPUs at rest", []Seen{still(0, 90), still(1, 70)}, true},
		{"one has moved of late", []Seen{still(0, 90), still(1, 50)}, false},
		{"NCCL spins, the GPU is busy without traffic", []Seen{onGPU(0, 90, 90, true), onGPU(1, 90, 90, true)}, true},
		{"GPUs at 0 % though CPUs spin", []Seen{onGPU(0, 90, 90, false), onGPU(1, 90, 90, false)}, true},
		{"a long evaluation without output", []Seen{onGPU(0, 900, 0, false), onGPU(1, 900, 900, true)}, false},
		{"a slow start: it compiles", []Seen{with(onGPU(0, 900, 900, false), func(s *Seen) { s.Worked = false })}, false},
		{"a first collective that never ends", []Seen{with(onGPU(0, 900, 900, true), func(s *Seen) { s.Worked = false }), with(onGPU(1, 900, 900, true), func(s *Seen) { s.Worked = false })}, true},
		{"one compiles, the other waits for it", []Seen{with(onGPU(0, 900, 900, true), func(s *Seen) { s.Worked = false }), with(onGPU(1, 900, 900, false), func(s *Seen) { s.Worked = false })}, false},
		{"a slow start: it reads", []Seen{with(still(0, 900), func(s *Seen) { s.Files = 1 })}, false},
		{"a start at which nothing moves", []Seen{with(onGPU(0, 900, 900, false), func(s *Seen) { s.Worked, s.CPU = false, 900 })}, true},
		{"data are prepared on CPUs", []Seen{with(still(0, 900), func(s *Seen) { s.CPU = 0 })}, false},
		{"it tells of its progress and prints nothing", []Seen{with(still(0, 900), func(s *Seen) { s.Told = 5 })}, false},
		{"it writes a checkpoint", []Seen{with(onGPU(0, 900, 900, false), func(s *Seen) { s.Files = 2 })}, false},
		{"it has only begun", []Seen{with(still(0, 900), func(s *Seen) { s.Age = 10 })}, false},
		{"nobody runs", nil, false},
	} {
		if got := Hung(c.all, 60); got != c.want {
			t.Errorf("%s: hung is %v", c.name, got)
		}
	}
}

func at(step int) func(*Seen) { return func(s *Seen) { s.Mark = observe.Mark{Epoch: -1, Step: step} } }

func TestTheRankThatTheOthersWaitForIsNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []Seen
		rank int // -1: nobody
		why  string
	}{
		{"by its progress", []Seen{with(still(0, 90), at(6)), with(still(1, 89), at(5)), with(still(2, 90), at(6))}, 1, "it is at step 5, the others at step 6\n"},
		{"the others are not all as far", []Seen{with(still(0, 90), at(6)), with(still(1, 89), at(5)), with(still(2, 90), at(7))}, 1, "at step 6 or later\n"},
		{"by its GPU, which does not wait", []Seen{onGPU(0, 90, 90, true), onGPU(1, 90, 90, true), onGPU(2, 90, 90, false)}, 2, "does nothing"},
		{"by its silence", []Seen{still(0, 90), still(1, 97), still(2, 90)}, 1, "silent first"},
		{"progress counts before silence", []Seen{with(still(0, 97), at(6)), with(still(1, 90), at(5))}, 1, "step 5"},
		{"the only one", []Seen{still(4, 90)}, 4, "only one"},
		{"all alike", []Seen{still(0, 90), still(1, 90.4)}, -1, ""},
	} {
		s, ok := Blame(c.all, nil)
		if ok != (c.rank >= 0) || ok && (s.Rank != c.rank || !strings.Contains(s.Why+"\n", c.why)) {
			t.Errorf("%s: rank %d, %v: %s", c.name, s.Rank, ok, s.Why)
		}
	}
}

func TestAStragglerIsOneRankAloneThatKeepsTheOthersWaiting(t *testing.T) {
	told := func(s Seen, step int, seconds float64) Seen {
		s.Told = seconds
		return with(s, at(step))
	}
	for _, c := range []struct {
		name string
		all  []Seen
		rank int
	}{
		{"it tells of no step while the others do", []Seen{told(still(0, 5), 50, 1), told(still(1, 90), 40, 90), told(still(2, 5), 50, 2)}, 1},
		{"all tell of none", []Seen{told(still(0, 90), 50, 90), told(still(1, 90), 40, 90)}, -1},
		{"its GPU computes and the others' wait", []Seen{onGPU(0, 1, 90, true), onGPU(1, 1, 0, false), onGPU(2, 1, 90, true)}, 1},
		{"the others' have waited for a moment", []Seen{onGPU(0, 1, 3, true), onGPU(1, 1, 0, false), onGPU(2, 1, 90, true)}, -1},
		{"all compute", []Seen{onGPU(0, 1, 0, false), onGPU(1, 1, 0, false)}, -1},
	} {
		s, ok := Straggler(c.all, 60)
		if ok != (c.rank >= 0) || ok && s.Rank != c.rank {
			t.Errorf("%s: rank %d, %v", c.name, s.Rank, ok)
		}
	}
}

const spied = `Process 4242: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4250 (idle): "Thread-1"
    wait (threading.py:331)
Thread 4242 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    wrapper (torch/distributed/c10d_logger.py:83)
    main (train.py:20)
    <module> (train.py:30)
`

const faulted = `Thread 0x00007f12 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f11 (most recent call first):
  File "train.py", line 12 in step
  File "train.py", line 30 in <module>
`

func TestTheMainThreadsInnermostFramesAreTold(t *testing.T) {
	for _, c := range []struct{ how, text, want string }{
		{"py-spy", spied, "all_reduce (torch/distributed/distributed_c10d.py:2501) < wrapper (torch/distributed/c10d_logger.py:83) < main (train.py:20) < <module> (train.py:30)"},
		{"faulthandler", faulted, "step (train.py:12) < <module> (train.py:30)"},
		{"kernel", "[<0>] futex_wait_queue+0x60/0x90\n[<0>] futex_wait+0x17e/0x270\n", "futex_wait_queue < futex_wait"},
		{"py-spy", "Error: Permission denied", ""},
		{"faulthandler", "", ""},
	} {
		if got := (Stack{c.how, c.text}).Innermost(); got != c.want {
			t.Errorf("%s: %q, want %q", c.how, got, c.want)
		}
	}
}
