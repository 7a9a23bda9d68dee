package check

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

// versions compares what hosts run with. Different NCCLs or torches end in hangs and
// "unhandled system error" (pytorch issue 72768, nccl issue 286), different drivers seldom.
func (j *judge) versions() {
	for i := range j.in.Hosts {
		j.program(i)
		j.module(i)
	}
	const same = "install the same everywhere, best from one lock file or image; the odd one is named above"
	hasGPU := func(value func(d *gpu.Inventory) *string) func(h Host) string {
		return func(h Host) string {
			if d := h.Facts.Devices; d != nil && d.Inventory != nil && len(d.Inventory.GPUs) > 0 && value(d.Inventory) != nil {
				return *value(d.Inventory)
			}
			return ""
		}
	}
	drivers := j.each(hasGPU(func(d *gpu.Inventory) *string { return d.Driver }))
	j.differ(differing{codes.DriverDiffers, "NVIDIA driver", "have the same driver installed everywhere; where the job runs well, check { ignore = [\"driver_differs\"] }", drivers, always(Warn)})
	if !isVaried(drivers) { // another driver brings another CUDA
		j.differ(differing{codes.CUDADiffers, "CUDA", "the same driver tells different versions: look for compatibility libraries (cuda-compat) in LD_LIBRARY_PATH on one of them",
			j.each(hasGPU(func(d *gpu.Inventory) *string { return d.CUDA })), always(Warn)})
	}
	severe := lowered(Fail, j.in.Plan.Backend == "none", Warn)
	j.differ(differing{codes.TorchDiffers, "torch", same, j.each(func(h Host) string { return h.runsWith().Torch }), byRelease(severe, Warn)})
	j.differ(differing{codes.NCCLDiffers, "NCCL", same, j.each(func(h Host) string { return h.runsWith().NCCL }),
		byRelease(lowered(Fail, j.in.Plan.Backend != "nccl", Info), lowered(Warn, j.in.Plan.Backend != "nccl", Info))})
	j.differ(differing{codes.PythonDiffers, "Python", same, j.each(func(h Host) string { return h.runsWith().Version }), byRelease(Warn, Info)})
	j.torchMissing()
}

func isVaried(values map[int]string) bool {
	first, varied := "", false
	for _, v := range values {
		varied = varied || first != "" && v != first
		first = v
	}
	return varied
}

// program tells of a command that cannot be found, if it was looked for where workers are
// going to: after setup, under their PATH. A job file's python is not what is started.
func (j *judge) program(at int) {
	h := j.in.Hosts[at]
	beforeSetup := h.Software == (facts.Software{}) && j.in.Job.Hosts[at].Setup != ""
	missing := h.runsWith().Missing
	if missing == "" || beforeSetup || j.in.Job.Python != "" || j.variable(at, "PATH") != "" {
		return
	}
	j.add(Finding{Code: codes.CommandMissing, Host: h.Name}, "", "install it there, write its whole path in command, or have setup put it into PATH",
		"the command cannot be started: %s", missing)
}

// module compares NVIDIA's kernel module with the libraries, which an update of packages
// leaves apart (NVML's LIB_RM_VERSION_MISMATCH).
func (j *judge) module(at int) {
	h := j.in.Hosts[at]
	d := h.Facts.Devices
	if d == nil || d.KernelModule == "" || d.Inventory == nil || d.Driver == nil || *d.Driver == d.KernelModule {
		return
	}
	j.add(Finding{Code: codes.ModuleDiffers, Host: h.Name}, "", "reboot it (or reload the module while nobody uses the GPUs)",
		"NVIDIA's kernel module is of version %s, its libraries of %s: the driver was updated and not reloaded", d.KernelModule, *d.Driver)
}

// torchMissing tells of Pythons without torch. That may be right for a job that needs
// none, but not where other hosts have it.
func (j *judge) torchMissing() {
	var with, without []int
	for i, h := range j.in.Hosts {
		switch s := h.runsWith(); {
		case s.Torch != "":
			with = append(with, i)
		case s.Python != "":
			without = append(without, i)
		}
	}
	if len(without) == 0 || j.in.Plan.Backend == "none" || j.in.Job.Program == config.ProgramJAX {
		return
	}
	const fix = "name the environment that has it: command = [\"venv/bin/python\", ...], or setup = \"source ~/venv/bin/activate\""
	if len(with) == 0 {
		s := j.in.Hosts[without[0]].runsWith()
		j.several(codes.TorchMissing, Info, fix, "the command runs with %s, which has no torch (%s)", s.Python, s.Why)
		return
	}
	for _, i := range without {
		s := j.in.Hosts[i].runsWith()
		j.add(Finding{Code: codes.TorchMissing, Host: j.in.Hosts[i].Name}, Warn, fix, "the command runs with %s, which has no torch, where %s has %s",
			s.Python, j.in.Hosts[with[0]].Name, j.in.Hosts[with[0]].runsWith().Torch)
	}
}

// sharing tells of ranks whose devices NCCL does not take: they share some, or have MIG
// devices (see nccl.OnDevices).
func (j *judge) sharing() {
	if j.in.Plan.Backend != "nccl" {
		return
	}
	var found plan.Meeting
	for _, h := range j.in.Hosts {
		found.Software = append(found.Software, h.runsWith())
	}
	for i, part := range j.in.Plan.Hosts {
		verdict, why, fix := environ.OnDevices(j.in.Plan, i, found)
		if verdict != nccl.Unknown && verdict != nccl.Refuses {
			continue
		}
		f := Finding{Code: codes.NCCLSharedGPU, Host: part.Name}
		if a, b, shared := j.twoOnOne(i); shared {
			f.GPU = &j.in.Plan.Ranks[a].Device.Index
			why = fmt.Sprintf("ranks %d and %d are on it, and %s", a, b, why)
		}
		unsure := found.Software[i].NCCL == "" && j.in.Job.Backend != "nccl" // nobody has asked for NCCL
		j.add(f, lowered(Fail, unsure, Warn), fix, "%s", why)
	}
}

// twoOnOne finds two ranks of a host on one device.
func (j *judge) twoOnOne(host int) (a, b int, shared bool) {
	part, first := j.in.Plan.Hosts[host], map[string]int{}
	for _, r := range j.in.Plan.Ranks[part.FirstRank : part.FirstRank+part.Ranks] {
		if r.Device == nil {
			continue
		}
		key := fmt.Sprintf("%s %d %d", r.Device.PCI, r.Device.Index, r.Device.MIG)
		if a, taken := first[key]; taken {
			return a, r.Rank, true
		}
		first[key] = r.Rank
	}
	return 0, 0, false
}
