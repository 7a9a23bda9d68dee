package hang

import (
	"strings"
	"testing"
)

// bySpy is what py-spy says of a program whose main thread has these frames, the innermost first.
func bySpy(frames ...string) Stack {
	return Stack{"py-spy", `Process 4242: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    ` + strings.Join(frames, "\n    ") + `
Thread 4250 (idle): "Thread-1 (_pin_memory_loop)"
    select (selectors.py:415)
    do_one_step (torch/utils/data/_utils/pin_memory.py:31)
    _bootstrap (threading.py:1002)
`}
}

// byFault is what Python's faulthandler writes of such a program.
func byFault(frames ...string) Stack {
	return Stack{"faulthandler", `Thread 0x00007f12aa7fc700 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f12b5d3b740 (most recent call first):
  ` + strings.Join(frames, "\n  ") + "\n"}
}

// Places at which programs of torch are found when nothing moves.
var (
	gloo       = bySpy("all_reduce (torch/distributed/distributed_c10d.py:2806)", "wrapper (torch/distributed/c10d_logger.py:81)", "work (gl.py:10)", "<module> (gl.py:12)")
	barrier    = bySpy("barrier (torch/distributed/distributed_c10d.py:4551)", "wrapper (torch/distributed/c10d_logger.py:81)", "save (train.py:61)", "<module> (train.py:80)")
	backward   = bySpy("_engine_run_backward (torch/autograd/graph.py:825)", "backward (torch/autograd/__init__.py:347)", "backward (torch/_tensor.py:581)", "step (train.py:43)")
	synced     = bySpy("synchronize (torch/cuda/__init__.py:985)", "step (train.py:45)", "<module> (train.py:80)")
	optimizer  = bySpy("_multi_tensor_adamw (torch/optim/adamw.py:612)", "adamw (torch/optim/adamw.py:875)", "step (torch/optim/adamw.py:243)", "step (train.py:46)")
	item       = bySpy("step (train.py:44)", "<module> (train.py:80)") // loss.item(), of which Python shows nothing
	asleep     = bySpy("work (gl.py:9)", "<module> (gl.py:12)")
	loads      = bySpy("poll (selectors.py:415)", "wait (multiprocessing/connection.py:947)", "_poll (multiprocessing/connection.py:440)", "get (multiprocessing/queues.py:113)", "_try_get_data (torch/utils/data/dataloader.py:1243)", "__next__ (torch/utils/data/dataloader.py:708)", "main (train.py:30)")
	saves      = bySpy("_write_item (torch/distributed/checkpoint/filesystem.py:402)", "save (train.py:70)")
	starts     = bySpy("_lazy_init (torch/cuda/__init__.py:412)", "set_device (torch/cuda/__init__.py:567)", "main (train.py:12)")
	faultGloo  = byFault(`File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce`, `File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81 in wrapper`, `File "/job/gl.py", line 10 in work`)
	faultSleep = byFault(`File "/job/gl.py", line 9 in work`, `File "/job/gl.py", line 12 in <module>`)
	compiled   = bySpy("call (/tmp/torchinductor_me/xw/cxwab.py:118)", "__call__ (torch/_inductor/output_code.py:465)", "step (train.py:40)")
	jax        = bySpy("_value (jax/_src/array.py:632)", "__float__ (jax/_src/array.py:292)", "main (train.py:21)")
	kernel     = Stack{"kernel", "[<0>] futex_wait_queue+0x60/0x90\n"}
)

func TestTheRankThatByTheStacksIsElsewhereIsNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		stacks []Stack
		rank   int // -1: nobody
		why    string
	}{
		{"asleep in its own code, gloo", []Stack{gloo, asleep}, 1, "by the stacks it alone is elsewhere, in work (gl.py:9), while the others wait in all_reduce"},
		{"the same by faulthandler", []Stack{faultGloo, faultSleep}, 1, "in work (/job/gl.py:9), while the others wait in all_reduce"},
		{"waits for data", []Stack{backward, gloo, loads, barrier}, 2, "in poll (selectors.py:415), while the others wait in _engine_run_backward, all_reduce, barrier"},
		{"waits for data, the others for their GPUs", []Stack{synced, loads, optimizer}, 1, "while the others wait in synchronize, _multi_tensor_adamw"},
		{"writes a checkpoint", []Stack{saves, barrier, barrier}, 0, "in _write_item (torch/distributed/checkpoint/filesystem.py:402)"},
		{"has not started CUDA", []Stack{gloo, gloo, starts}, 2, "in _lazy_init"},
		{"in code of torch.compile", []Stack{compiled, loads, compiled}, 1, "the others wait in call"},
		{"JAX", []Stack{jax, jax, asleep}, 2, "the others wait in _value"},
		{"where it is could not be found out", []Stack{gloo, kernel, gloo}, 1, "by the stacks the others wait in all_reduce, and where it is could not be found out"},
		{"its host has not answered", []Stack{gloo, {}, gloo}, 1, "could not be found out"},
		{"a few of many", []Stack{gloo, gloo, loads, gloo, gloo, asleep, gloo, gloo}, 2, "in poll (selectors.py:415), as rank 5 is too, while the others wait in all_reduce"},
		{"loss.item(), where a line of the program itself is all that shows", []Stack{item, item, loads, item}, 2, "by the stacks it alone is in poll (selectors.py:415), while the others are all in step (train.py:44)"},

		{"all wait", []Stack{gloo, barrier, backward}, -1, ""},
		{"all are at one line", []Stack{item, item, item}, -1, ""},
		{"one of two, and none is known to wait", []Stack{item, loads}, -1, ""},
		{"half are elsewhere", []Stack{gloo, gloo, loads, asleep}, -1, ""},
		{"all are at lines of their own", []Stack{item, loads, asleep}, -1, ""},
		{"nothing is known", []Stack{kernel, kernel, {}}, -1, ""},
		{"py-spy may not look", []Stack{{"py-spy", "Error: Permission denied"}, {"py-spy", "Error: Permission denied"}}, -1, ""},
	} {
		var all []Seen
		stacks := map[int]Stack{}
		for rank, stack := range c.stacks {
			all, stacks[rank] = append(all, still(rank, 90)), stack
		}
		s, ok := Blame(all, stacks)
		if ok != (c.rank >= 0) || ok && (s.Rank != c.rank || !strings.Contains(s.Why, c.why)) {
			t.Errorf("%s: rank %d, %v: %s", c.name, s.Rank, ok, s.Why)
		}
	}
}

// loss.item() is no frame of Python's, and a GPU that spins says that it waits.
func TestARankWhoseGPUSpinsWaitsWhateverItsStackShows(t *testing.T) {
	all := []Seen{onGPU(0, 90, 90, true), onGPU(1, 90, 90, false), onGPU(2, 90, 90, false)}
	s, ok := Blame(all, map[int]Stack{0: item, 1: gloo, 2: loads})
	if !ok || s.Rank != 2 || !strings.Contains(s.Why, "the others wait in NCCL on their GPUs, all_reduce") {
		t.Errorf("rank %d, %v: %s", s.Rank, ok, s.Why)
	}
}

func TestProgressCountsBeforeStacksAndStacksBeforeSilence(t *testing.T) {
	stacks := map[int]Stack{0: gloo, 1: gloo, 2: asleep}
	behind := []Seen{with(still(0, 90), at(5)), with(still(1, 90), at(6)), with(still(2, 90), at(6))}
	if s, ok := Blame(behind, stacks); !ok || s.Rank != 0 {
		t.Errorf("rank %d, %v: %s", s.Rank, ok, s.Why)
	}
	if s, ok := Blame([]Seen{still(0, 97), still(1, 90), still(2, 90)}, stacks); !ok || s.Rank != 2 {
		t.Errorf("rank %d, %v: %s", s.Rank, ok, s.Why)
	}
}
