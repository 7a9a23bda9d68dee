package gpus

import (
	"fmt"

	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// throttled is about GPUs that are slowed down now.
func throttled(g *rule.GPU) rule.Findings {
	slow := gpu.SlowText(g.Throttled)
	if slow == "" {
		return nil
	}
	return g.Find("the whole job is as slow as its slowest GPU: look at cooling and power of the machine, or leave the GPU out", "slowed down: %s", slow)
}

// computeMode is about cudaComputeMode (N): prohibited lets nobody in, exclusive process one process only.
func computeMode(g *rule.GPU) rule.Findings {
	if g.ComputeMode == nil || !g.IsUsed() {
		return nil
	}
	const fix = "nvidia-smi -i N -c 0, by root, ends that"
	switch {
	case *g.ComputeMode == "prohibited":
		return g.Find(fix, "no CUDA process is let in (compute mode prohibited)")
	case *g.ComputeMode == "exclusive_process" && len(g.Ranks) > len(g.Devices) && g.Host.In.Job.MPS == nil:
		return g.Find(fix+"; or use MPS (mps { ranks_per_gpu = N }), or as many GPUs as ranks",
			"%s share it, and it lets in one process only (compute mode exclusive process)", plural.Of(len(g.Ranks), "rank"))
	}
	return nil
}

// migMode is about partitioning against what the plan gives to ranks: a GPU with MIG on cannot be used whole, and has
// no NVLink.
func migMode(g *rule.GPU) rule.Findings {
	if g.MIG.Enabled == nil {
		return nil
	}
	on := *g.MIG.Enabled
	for _, d := range g.Devices {
		if on == d.IsInstance() {
			continue
		}
		what := "MIG is on, and the plan gives the whole GPU to a rank"
		if d.IsInstance() {
			what = fmt.Sprintf("MIG is off, and the plan gives %s to a rank", d)
		}
		return g.Find("plan again; or set it as it was (nvidia-smi -i N -mig 0 or 1, by root, while nobody uses it)", "%s", what)
	}
	if p := g.MIG.Pending; p != nil && *p != on {
		return g.Find("have it reset now, or take the change back", "MIG is switched %s at the next reset", onOff[*p]).As(rule.Warn)
	}
	return nil
}

// persistence off makes the first CUDA call slow and loses settings (N). Where all are alike somebody may want it so.
func persistence(g *rule.GPU) rule.Findings {
	if !gpu.IsFalse(g.Persistence) || !g.IsUsed() {
		return nil
	}
	severity, sisters := rule.Info, ""
	for _, s := range g.Sisters() {
		if gpu.IsTrue(s.Persistence) {
			severity, sisters = rule.Warn, ", on its sister GPUs it is on"
		}
	}
	return g.Find("start nvidia-persistenced, or nvidia-smi -pm 1, by root",
		"persistence mode is off%s: the first CUDA call of each run is slow", sisters).As(severity)
}
