package gpus

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Mixed is a workstation with a small card for the display in the first slot and a big
// one in the second: nvidia-smi's GPU 0 is the small one, and CUDA's, which counts from the
// fastest unless CUDA_DEVICE_ORDER says otherwise, the big one.
func Mixed() *Scenario {
	s := &Scenario{Name: "mixed", Driver: "550.54.15", CUDA: "12.4", P2P: "GNS", Nodes: nodes(64*gib, "0-15"), GPUs: []GPU{
		t400.card("0000:01:00.0", direct("0000:00", 0, 1, 0), 0),
		r3090.card("0000:02:00.0", direct("0000:00", 0, 1, 1), 1),
	}}
	big := &s.GPUs[1]
	big.PCIe.Generation = new(1) // an idle card without persistence mode saves power
	big.Ports = make([]Port, 4)
	small := &s.GPUs[0]
	small.Processes = []gpu.Process{{PID: 1842, Name: "/usr/lib/xorg/Xorg", Kind: "graphics", Memory: new(uint64(152 * mib))}}
	return s
}

// Lost is four L40S of which GPU 1 has fallen off the bus.
func Lost() *Scenario { return l40sWith("gpu-lost", 1, gpu.StateLost) }

// NeedsReset is four L40S of which GPU 2 needs a reset after an uncorrectable error.
func NeedsReset() *Scenario {
	s := l40sWith("needs-reset", 2, gpu.StateNeedsReset)
	s.GPUs[2].Recovery = new("gpu_reset")
	return s
}

func l40sWith(name string, card int, state string) *Scenario {
	s := L40S()
	s.Name = name
	s.GPUs[card].State = state
	return s
}

// Worn is four A100 of a DGX whose memory shows its age, one trouble each: rows remapped
// that await a reset, remapping failed, uncorrectable errors, clocks held down by heat. One
// link of GPU 3 is down.
func Worn() *Scenario {
	s := DGXA100()
	s.Name, s.GPUs, s.NICs = "worn", s.GPUs[:4], nil
	s.GPUs[0].Remapped = gpu.Remapped{Correctable: new(2), Uncorrectable: new(1), Pending: new(true), Failed: new(false)}
	s.GPUs[0].Recovery = new("drain_and_reset")
	s.GPUs[1].Remapped = gpu.Remapped{Correctable: new(0), Uncorrectable: new(8), Pending: new(false), Failed: new(true)}
	s.GPUs[2].ECC = gpu.ECC{Enabled: new(true), Volatile: new(uint64(3)), Aggregate: new(uint64(7)), SRAMVolatile: new(uint64(1))}
	s.GPUs[3].Throttled = []string{"hw_slowdown", "hw_thermal"}
	s.GPUs[3].Ports[3] = Port{}
	s.GPUs[3].PCIe.Width = new(8)
	return s
}

// RetiredPages is a DGX-1 whose GPU 0 has pages retired and more to retire.
func RetiredPages() *Scenario {
	s := DGX1()
	s.Name = "retired-pages"
	s.GPUs[0].Retired = gpu.Retired{SingleBit: new(4), DoubleBit: new(61), Pending: new(true)}
	s.GPUs[0].ECC.Volatile, s.GPUs[0].ECC.Aggregate = new(uint64(1)), new(uint64(61))
	return s
}

// MIG is two A100, GPU 0 in MIG mode with two instances, of 3/7 and of 1/7, and GPU 1 whole.
func MIG() *Scenario {
	s := DGXA100()
	s.Name, s.GPUs, s.NICs = "mig", s.GPUs[:2], s.NICs[:2]
	g := &s.GPUs[0]
	g.MIG = gpu.MIG{Enabled: new(true), Pending: new(true), Instances: []gpu.MIGInstance{
		{Index: 0, UUID: uuid("MIG", g.PCI, 20), Profile: "3g.40gb", GI: new(2), CI: new(0), Memory: new(uint64(40192 * mib))},
		{Index: 1, UUID: uuid("MIG", g.PCI, 21), Profile: "1g.10gb", GI: new(9), CI: new(0), Memory: new(uint64(9728 * mib))},
	}}
	g.Processes = []gpu.Process{{PID: 21180, Name: "python", Kind: "compute", Memory: new(uint64(2296 * mib)), GI: new(2), CI: new(0)}}
	return s
}

// MIGTwo is two A100, each in MIG mode with an instance of 3/7 and two of 1/7.
func MIGTwo() *Scenario {
	s := MIG()
	s.Name = "mig-two"
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.MIG, g.Processes = gpu.MIG{Enabled: new(true), Pending: new(true)}, []gpu.Process{}
		for at, profile := range []string{"3g.40gb", "1g.10gb", "1g.10gb"} {
			instance := gpu.MIGInstance{Index: at, UUID: uuid("MIG", g.PCI, 20+at), Profile: profile, GI: new(7 + at), CI: new(0), Memory: new(uint64(9728 * mib))}
			if at == 0 {
				instance.GI, instance.Memory = new(2), new(uint64(40192*mib))
			}
			g.MIG.Instances = append(g.MIG.Instances, instance)
		}
	}
	return s
}

// MIGBare is two A100, GPU 0 whole and about to be partitioned at its next reset, GPU 1 in MIG
// mode without instances.
func MIGBare() *Scenario {
	s := MIG()
	s.Name = "mig-bare"
	s.GPUs[0].MIG = gpu.MIG{Enabled: new(false), Pending: new(true), Instances: []gpu.MIGInstance{}}
	s.GPUs[1].MIG = gpu.MIG{Enabled: new(true), Pending: new(true), Instances: []gpu.MIGInstance{}}
	s.GPUs[0].Processes = []gpu.Process{}
	return s
}

// Busy is four L40S: 0 holds 15 GB of a process of another user, 1 holds 15 GB that no
// process explains, 2 and 3 are idle.
func Busy() *Scenario {
	s := L40S()
	s.Name = "busy"
	s.GPUs[0].Processes = []gpu.Process{{PID: 2914771, Name: "/home/eva/venv/bin/python", Kind: "compute", Memory: new(uint64(15360 * mib))}}
	s.GPUs[1].Unexplained = 15360 * mib
	return s
}

// Exclusive is four L40S in exclusive-process mode.
func Exclusive() *Scenario {
	s := L40S()
	s.Name = "exclusive"
	for i := range s.GPUs {
		s.GPUs[i].ComputeMode = new("exclusive_process")
	}
	return s
}

// Pascal is four P100 with a driver of their time: MPS has no address spaces for clients, room
// for 16 contexts, and no limits of memory, which came with CUDA 11.5.
func Pascal() *Scenario {
	s := fourCards("pascal", p100)
	s.Driver, s.CUDA = "470.82.01", "11.4"
	s.Lacks = []string{"set_default_device_pinned_mem_limit", "get_default_device_pinned_mem_limit", "set_device_pinned_mem_limit", "get_device_pinned_mem_limit"}
	return s
}

// Twins is two L40S whose UUIDs begin alike, so that a short prefix names both.
func Twins() *Scenario {
	s := L40S()
	s.Name, s.GPUs, s.NICs = "twins", s.GPUs[:2], nil
	for i := range s.GPUs {
		s.GPUs[i].UUID = "GPU-5e2a9c01" + s.GPUs[i].UUID[len("GPU-5e2a9c01"):]
	}
	return s
}

// NoDriver is four L40S whose kernel module is not loaded.
func NoDriver() *Scenario {
	s := L40S()
	s.Name, s.Init = "no-driver", InitDriverNotLoaded
	return s
}

// NoLibrary is four L40S on a machine where nothing of NVIDIA's is installed.
func NoLibrary() *Scenario {
	s := L40S()
	s.Name, s.Init, s.NoLibrary, s.NoProgram, s.NoMPS = "no-library", InitDriverNotLoaded, true, true, true
	return s
}

// NoGPU is a machine with the driver and without a GPU.
func NoGPU() *Scenario {
	s := L40S()
	s.Name, s.GPUs, s.NICs = "no-gpu", []GPU{}, nil
	return s
}

var builtin = map[string]func() *Scenario{
	"dgx-a100": DGXA100, "a800": A800, "dgx-h100": DGXH100, "h200": H200, "dgx1-v100": DGX1, "two-islands": TwoIslands,
	"bridged-a40": BridgedPairs, "bridged-a6000": BridgedA6000, "l40s": L40S, "mixed": Mixed, "gpu-lost": Lost,
	"needs-reset": NeedsReset, "worn": Worn, "retired-pages": RetiredPages, "mig": MIG, "mig-two": MIGTwo, "mig-bare": MIGBare, "busy": Busy, "exclusive": Exclusive,
	"pascal": Pascal,
	"twins":  Twins, "no-driver": NoDriver, "no-library": NoLibrary, "no-gpu": NoGPU,
}

// Names are those of the built-in scenarios.
func Names() []string { return slices.Sorted(maps.Keys(builtin)) }

// Named makes a built-in scenario, nil where there is none of that name.
func Named(name string) *Scenario {
	if make := builtin[name]; make != nil {
		return make()
	}
	return nil
}
