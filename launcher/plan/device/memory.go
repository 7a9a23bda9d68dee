package device

import (
	"slices"

	"github.com/muster-dev/muster/plugins/gpu"
)

// instance is the MIG instance that a device is; nil for a GPU.
func instance(g *gpu.GPU, d Device) *gpu.MIGInstance {
	if !d.IsInstance() {
		return nil
	}
	at := slices.IndexFunc(g.MIG.Instances, func(m gpu.MIGInstance) bool { return m.Index == d.MIG })
	if at < 0 {
		return nil
	}
	return &g.MIG.Instances[at]
}

// MemoryOf is the memory of a device in bytes: a GPU's, or that of its MIG instance; nil where it is not known.
func MemoryOf(g *gpu.GPU, d Device) (total, used, reserved *uint64) {
	if !d.IsInstance() {
		return g.Memory.Total, g.Memory.Used, g.Memory.Reserved
	}
	if m := instance(g, d); m != nil {
		return m.Memory, m.Used, nil
	}
	return nil, nil, nil
}

// Processes are those of a device. Those on a GPU with MIG name their instance.
func Processes(g *gpu.GPU, d Device) []gpu.Process {
	if !d.IsInstance() {
		return g.Processes
	}
	m := instance(g, d)
	return processesIf(g, func(p gpu.Process) bool { return m != nil && p.On(*m) })
}

// Besides are the processes that hold a device's memory in use: those of the other compute instances too that share
// it.
func Besides(g *gpu.GPU, d Device) []gpu.Process {
	gi := GPUInstance(g, d)
	if gi == nil {
		return Processes(g, d)
	}
	return processesIf(g, func(p gpu.Process) bool { return p.GI != nil && *p.GI == *gi })
}

func processesIf(g *gpu.GPU, is func(gpu.Process) bool) []gpu.Process {
	return slices.DeleteFunc(slices.Clone(g.Processes), func(p gpu.Process) bool { return !is(p) })
}

// GPUInstance is the GPU instance of a MIG device, whose compute instances share its memory; nil for a GPU, or where
// it is not known.
func GPUInstance(g *gpu.GPU, d Device) *int {
	if m := instance(g, d); m != nil {
		return m.GI
	}
	return nil
}
