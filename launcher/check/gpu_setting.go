package check

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// settings are about how a GPU is set up, and how it is just now.
func (h *hostJudge) settings(g usedGPU) {
	h.computeMode(g)
	h.mig(g)
	h.persistence(g)
	if words := gpu.SlowWords(g.Throttled); words != "" {
		h.sayOf(g, codes.Throttled, "", "the whole job is as slow as its slowest GPU: look at cooling and power of the machine, or leave the GPU out", "slowed down: %s", words)
	}
}

// computeMode is about cudaComputeMode (N): prohibited lets nobody in, exclusive process
// one process only.
func (h *hostJudge) computeMode(g usedGPU) {
	if g.ComputeMode == nil || !g.isUsed() {
		return
	}
	const fix = "nvidia-smi -i N -c 0, by root, ends that"
	switch *g.ComputeMode {
	case "prohibited":
		h.sayOf(g, codes.ComputeMode, "", fix, "no CUDA process is let in (compute mode prohibited)")
	case "exclusive_process":
		if len(g.ranks) > len(g.devices) && h.in.Job.MPS == nil {
			h.sayOf(g, codes.ComputeMode, "", fix+"; or use MPS (mps { ranks_per_gpu = N }), or as many GPUs as ranks",
				"%s share it, and it lets in one process only (compute mode exclusive process)", plural.Of(len(g.ranks), "rank"))
		}
	}
}

// mig is about partitioning against what the plan gives to ranks: a GPU with MIG on cannot
// be used whole, and has no NVLink.
func (h *hostJudge) mig(g usedGPU) {
	on := gpu.IsTrue(g.MIG.Enabled)
	for _, d := range g.devices {
		if on != d.IsInstance() && g.MIG.Enabled != nil {
			what := "MIG is on, and the plan gives the whole GPU to a rank"
			if d.IsInstance() {
				what = fmt.Sprintf("MIG is off, and the plan gives %s to a rank", d)
			}
			h.sayOf(g, codes.MIGMode, "", "plan again; or set it as it was (nvidia-smi -i N -mig 0 or 1, by root, while nobody uses it)", "%s", what)
			return
		}
	}
	if p := g.MIG.Pending; p != nil && g.MIG.Enabled != nil && *p != on {
		h.sayOf(g, codes.MIGMode, Warn, "have it reset now, or take the change back", "MIG is switched %s at the next reset", map[bool]string{true: "on", false: "off"}[*p])
	}
}

// persistence off makes the first CUDA call slow and loses settings (N). Where all are
// alike somebody may want it so.
func (h *hostJudge) persistence(g usedGPU) {
	if !gpu.IsFalse(g.Persistence) || !g.isUsed() {
		return
	}
	others := 0
	for _, s := range h.sisters(g) {
		if gpu.IsTrue(s.Persistence) {
			others++
		}
	}
	severity, words := Info, ""
	if others > 0 {
		severity, words = Warn, ", on its sister GPUs it is on"
	}
	h.sayOf(g, codes.PersistenceOff, severity, "start nvidia-persistenced, or nvidia-smi -pm 1, by root",
		"persistence mode is off%s: the first CUDA call of each run is slow", words)
}
