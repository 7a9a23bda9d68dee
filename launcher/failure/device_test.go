package failure

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/plugins/gpu"
)

const card = 80 << 30

// machine is a host with two GPUs of the plan; the worker has the first.
func machine(change func(gpus []GPU)) []GPU {
	gpus := []GPU{
		{ID: gpu.ID{Index: 4, UUID: "GPU-a", PCI: "00000000:0F:00.0"}, Seen: 0, Mine: true, Ranks: 1},
		{ID: gpu.ID{Index: 5, UUID: "GPU-b", PCI: "00000000:1F:00.0"}, Seen: 1, Ranks: 1},
	}
	change(gpus)
	return gpus
}

func onGPU(words string, change func(gpus []GPU)) Evidence {
	e := wrote(words)
	e.GPUs = machine(change)
	return e
}

// full is a message of GPU n that says nothing of other processes.
func full80(n string) string {
	return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU " + n + " has a total capacity of 80.00 GiB of which 1.00 GiB is free. " +
		"Of the allocated memory 70.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
}

func own(bytes uint64) Process { return Process{Holder: gpu.Holder{PID: 10, Bytes: &bytes}, Own: true} }

func TestNVMLSaysWhoHeldTheMemory(t *testing.T) {
	busy := &Use{Total: card, Used: 70 << 30}
	run(t, []row{
		{"nobody else", onGPU(full80("0"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(79 << 30)}}
			g[1].Before = busy
		}),
			class.OOMCapacity, verdict.Certain, class.No, "too small", "NVML saw 79.00 GiB of 80.00 GiB in use on GPU 4"},
		{"somebody else", onGPU(full80("0"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(70 << 30), {Holder: gpu.Holder{PID: 77, Rank: gpu.Nobody, Bytes: new(uint64(9 << 30)), User: "eve", Command: "python"}}}}
		}),
			class.OOMForeign, verdict.Certain, class.AfterFree, "python (pid 77) of eve has 9.00 GiB", "python (pid 77) of eve"},
		{"another rank of the run", onGPU(full80("0"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(50 << 30), {Holder: gpu.Holder{PID: 11, Rank: 1, Bytes: new(uint64(29 << 30))}}}}
		}),
			class.OOMImbalance, verdict.Likely, class.No, "several ranks of the run use GPU 4", "rank 1 (pid 11)"},
		{"another rank that the plan put there", onGPU(full80("0"), func(g []GPU) {
			g[0].Ranks = 2
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(50 << 30), {Holder: gpu.Holder{PID: 11, Rank: 1, Bytes: new(uint64(29 << 30))}}}}
			g[1].Before = busy
		}),
			class.OOMCapacity, "", "", "", ""},
		{"the other GPUs are empty", onGPU(full80("0"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(79 << 30)}}
			g[1].Before = &Use{Total: card, Used: 5 << 30}
		}), class.OOMImbalance, verdict.Likely, class.No, "while the other GPUs of the plan are not half full", ""},
		{"another rank's GPU", onGPU(full80("1"), func(g []GPU) {}), class.OOMImbalance, verdict.Certain, class.No, "filled GPU 5, which the plan gave to another rank", ""},
		{"a share under MPS", with(onGPU(full80("0"), func(g []GPU) { g[0].Before = &Use{Total: card, Used: 40 << 30} }), func(e *Evidence) { e.MPSLimit = 18 << 30 }),
			class.OOMMPSLimit, verdict.Likely, class.WithConfig, "share of GPU 4 under MPS (18.00 GiB)", ""},
		{"the driver refused, and somebody else is there", onGPU(traceback("RuntimeError: CUDA error: out of memory"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{{Holder: gpu.Holder{PID: 77, Rank: gpu.Nobody, Bytes: new(uint64(78 << 30))}}}}
		}), class.OOMForeign, verdict.Certain, class.AfterFree, "pid 77", ""},
		{"the message's other process is nobody's", onGPU(full80("0")+" Process 77 has 8.00 GiB memory in use. Including non-PyTorch memory, this process has 71.00 GiB memory in use.", func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(79 << 30)}}
			g[1].Before = busy
		}), class.OOMCapacity, verdict.Likely, "", "nobody else held memory", ""},
		{"what never fits is nobody else's fault", onGPU("CUDA out of memory. Tried to allocate 90.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free.", func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{{Holder: gpu.Holder{PID: 77, Rank: gpu.Nobody, Bytes: new(uint64(78 << 30))}}}}
		}), class.OOMCapacity, verdict.Certain, class.No, "never fits", ""},
	})
}

func TestTheDriverSaysWhatIsWrongWithAGPU(t *testing.T) {
	illegal := traceback("RuntimeError: CUDA error: an illegal memory access was encountered")
	xids := func(numbers ...int) func(g []GPU) {
		return func(g []GPU) {
			for i, n := range numbers {
				g[0].Xids = append(g[0].Xids, Xid{Number: n, At: float64(i)})
			}
		}
	}
	errors := uint64(3)
	run(t, []row{
		{"lost", onGPU("x", func(g []GPU) { g[0].Lost = "GPU is lost" }), class.GPULost, verdict.Certain, class.OtherHost, "GPU 4", ""},
		{"another rank's is lost", onGPU(traceback("ValueError: x"), func(g []GPU) { g[1].Lost = "GPU is lost" }), class.UserError, "", "", "", ""},
		{"errors of memory", onGPU("x", func(g []GPU) { g[0].ECC = &errors }), class.GPUECC, verdict.Likely, class.OtherHost, "3 errors", ""},
		{"a double-bit error", onGPU(illegal, xids(48)), class.GPUECC, verdict.Certain, class.OtherHost, "Xid 48 of GPU 4", ""},
		{"a contained one", onGPU(illegal, xids(63, 48, 94)), class.GPUECC, verdict.Certain, class.Yes, "", "contained"},
		{"one that was not contained", onGPU(illegal, xids(48, 94, 95)), class.GPUECC, verdict.Certain, class.OtherHost, "", ""},
		{"the program's own fault", onGPU(illegal, xids(31, 43, 45)), class.GPUAppFault, verdict.Certain, class.No, "Xid 31", "Xid 43"},
		{"consequences alone", onGPU(traceback("ValueError: x"), xids(43, 45)), class.UserError, "", "", "", ""},
		{"notices alone", onGPU(traceback("ValueError: x"), xids(63, 92, 106)), class.UserError, "", "", "", ""},
		{"a number without a class", onGPU("x", xids(8)), class.GPUXid, verdict.Certain, class.Yes, "Xid 8", ""},
		{"a number in no table", onGPU("x", xids(999)), class.GPUXid, verdict.Certain, class.Yes, "in no table", ""},
		{"a link", onGPU("x", xids(74)), class.GPUNVLink, verdict.Certain, class.OtherHost, "", ""},
		{"in the kernel's log, of the worker's GPU", with(onGPU("x", func([]GPU) {}), func(e *Evidence) {
			e.Kernel = []string{"NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=python, GPU has fallen off the bus."}
		}), class.GPULost, "", "", "", ""},
		{"in the kernel's log, of another GPU", with(onGPU("x", func([]GPU) {}), func(e *Evidence) { e.Kernel = []string{"NVRM: Xid (PCI:0000:1f:00): 79, GPU has fallen off the bus."} }), class.Exit, "", "", "", ""},
		{"in the kernel's log, by the worker's pid", with(wrote("x"), func(e *Evidence) {
			e.PIDs = []int{7}
			e.Kernel = []string{"NVRM: Xid (PCI:0000:1f:00): 13, pid='7', name=python, Graphics Exception"}
		}), class.GPUAppFault, "", "", "", ""},
		{"out of memory comes before the program's fault", onGPU(full80("0"), xids(31)), class.OOMCapacity, "", "", "", ""},
		{"but after a broken GPU", onGPU(full80("0"), xids(79)), class.GPULost, "", "", "", ""},
	})
}

// NVML's events and the kernel's log tell of one error each in its own way.
func TestAnXidOfBothReportsCountsOnce(t *testing.T) {
	line := func(pci, number, words string) string {
		return "NVRM: Xid (PCI:" + pci + "): " + number + ", pid=1, name=python, " + words
	}
	e := onGPU("x", func(g []GPU) {
		g[0].Xids = []Xid{{Number: 48, At: 7}, {Number: 48, At: 9}}
	})
	e.Kernel = []string{line("0000:0f:00", "48", "DBE at once"), line("0000:0f:00", "63", "row remap"), line("0000:1f:00", "79", "another's")}
	var told []string
	for _, x := range e.xids() {
		told = append(told, x.String())
	}
	want := []string{"Xid 48 of GPU 4 (pid=1, name=python, DBE at once)", "Xid 48 of GPU 4", "Xid 63 of the GPU at 0000:0f:00 (pid=1, name=python, row remap)"}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	if v := Classify(e); v.Since != 7 || v.Numbers[verdict.NumXid] != 48 {
		t.Errorf("since %v, numbers %v", v.Since, v.Numbers)
	}
	run(t, []row{
		{"what the log says beside it counts", with(e, func(e *Evidence) {
			e.GPUs[0].Xids = []Xid{{Number: 154, At: 1}}
			e.Kernel = []string{line("0000:0f:00", "154", "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")}
		}), class.Exit, "", "", "", ""},
		{"an error of the log alone", with(e, func(e *Evidence) {
			e.GPUs[0].Xids = []Xid{{Number: 63, At: 1}}
			e.Kernel = []string{line("0000:0f:00", "95", "uncontained")}
		}), class.GPUECC, verdict.Certain, class.OtherHost, "Xid 95 of the GPU at 0000:0f:00", "Xid 63 of GPU 4"},
		{"a lost GPU with what led to it", onGPU("x", func(g []GPU) {
			g[0].Lost, g[0].Xids = "GPU is lost", []Xid{{Number: 74, At: 1}}
		}), class.GPULost, verdict.Certain, class.OtherHost, "GPU 4", "Xid 74"},
		{"nothing could be heard", with(onGPU("CUDA error: GPU is lost", func([]GPU) {}), func(e *Evidence) { e.NoEvents = "nvidia-smi tells of no events" }),
			class.GPULost, "", "", "", "could not be heard: nvidia-smi tells of no events"},
	})
	if v := Classify(with(onGPU(traceback("ValueError: x"), func([]GPU) {}), func(e *Evidence) { e.NoEvents = "nvidia-smi tells of no events" })); len(v.Notes) > 0 {
		t.Errorf("it is of no interest there: %q", v.Notes)
	}
}

func TestWhoIsStillThereAfterTheDeathIsTold(t *testing.T) {
	foreign := []Process{{Holder: gpu.Holder{PID: 77, Rank: gpu.Nobody, Bytes: new(uint64(60 << 30)), User: "eve"}}}
	run(t, []row{
		{"after a look before", onGPU(full80("0"), func(g []GPU) {
			g[0].Before = &Use{Total: card, Used: 79 << 30, Processes: []Process{own(79 << 30)}}
			g[0].After = &Use{Total: card, Used: 1 << 30}
		}), class.OOMCapacity, verdict.Certain, "", "", "NVML saw 1.00 GiB of 80.00 GiB in use on GPU 4 when it had ended"},
		{"a worker that was gone before anybody looked", onGPU("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 19.00 GiB is free. "+
			"Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.", func(g []GPU) {
			g[0].After = &Use{Total: card, Used: 61 << 30, Processes: foreign}
		}), class.OOMForeign, verdict.Certain, class.AfterFree, "eve", "since it ended"},
		{"what is there decides nothing where it would not have fitted", onGPU(full80("0"), func(g []GPU) {
			g[0].After = &Use{Total: card, Used: 1 << 30, Processes: []Process{{Holder: gpu.Holder{PID: 77, Rank: gpu.Nobody, Bytes: new(uint64(100 << 20))}}}}
		}), class.OOMCapacity, "", class.No, "too small", ""},
	})
	v := Classify(onGPU(full80("0"), func(g []GPU) { g[0].After = &Use{Total: card, Used: 61 << 30, Processes: foreign} }))
	if v.Numbers[verdict.NumDeviceAfter] != 61<<30 || v.Numbers[verdict.NumOthers] != 60<<30 {
		t.Errorf("numbers %v", v.Numbers)
	}
}
