package gpu

import "context"

// Sampler is a Prober that can also look often, at the little that changes all the
// time, for a small part of what a Probe costs. It may keep the driver's library open from
// the first Sample until its process ends.
type Sampler interface {
	Prober
	// Sample reads what changes now. Its error means that nothing is known of GPUs here.
	Sample(ctx context.Context) (*Samples, error)
}

// Samples is what one look has shown.
type Samples struct {
	Source string `json:"source"`
	// Every is how many seconds there should be between two looks, where looking costs more
	// than a call of the driver; 0: one is enough.
	Every float64  `json:"every_s,omitempty"`
	GPUs  []Sample `json:"gpus"` // by index
}

// Sample is how a device is used. As in GPU, a value that could not be read is nil, and
// Why says why.
type Sample struct {
	Index       int               `json:"index"`
	UUID        string            `json:"uuid"`
	State       string            `json:"state"`
	Memory      Memory            `json:"memory"`
	Utilization Utilization       `json:"utilization"`
	Processes   []Process         `json:"processes"` // that hold memory, as in GPU
	Instances   []MIGInstance     `json:"instances"` // of a GPU in MIG mode
	Why         map[string]string `json:"why,omitempty"`
}

// Utilization is how busy a device was of late, in percent of the time: NVML's period is
// between a sixth of a second and one. GPU is the time in which a kernel ran, which a
// collective that waits for others fills too; Memory that in which its memory was read or
// written.
type Utilization struct {
	GPU    *int `json:"gpu"`
	Memory *int `json:"memory"`
}

// Used is the memory in use of the device with this UUID, a GPU or a MIG instance; nil
// where it is not told.
func (s *Samples) Used(uuid string) (used, total *uint64) {
	for _, g := range s.GPUs {
		if g.UUID == uuid {
			return g.Memory.Used, g.Memory.Total
		}
		for _, m := range g.Instances {
			if m.UUID == uuid && uuid != "" {
				return m.Used, m.Memory
			}
		}
	}
	return nil, nil
}

// Probed are samples in the form of a probe.
func (s *Samples) Probed() *Inventory {
	found := &Inventory{Source: s.Source}
	for _, g := range s.GPUs {
		found.GPUs = append(found.GPUs, GPU{Index: g.Index, UUID: g.UUID, State: g.State, Memory: g.Memory,
			Processes: g.Processes, MIG: MIG{Instances: g.Instances}})
	}
	return found
}

// DeviceOf is the UUID of what a process of the GPU holds memory of: a MIG instance, where
// it is on one.
func (g *Sample) DeviceOf(p Process) string {
	return deviceOf(g.UUID, g.Instances, p)
}

// DeviceOf is the UUID of what a process of the GPU holds memory of: a MIG instance, where
// it is on one.
func (g *GPU) DeviceOf(p Process) string { return deviceOf(g.UUID, g.MIG.Instances, p) }

func deviceOf(uuid string, instances []MIGInstance, p Process) string {
	for _, m := range instances {
		if p.On(m) {
			return m.UUID
		}
	}
	return uuid
}

// On reports whether a process of a GPU runs on one of its MIG instances.
func (p Process) On(m MIGInstance) bool {
	return p.GI != nil && m.GI != nil && *p.GI == *m.GI && (p.CI == nil || m.CI == nil || *p.CI == *m.CI)
}
