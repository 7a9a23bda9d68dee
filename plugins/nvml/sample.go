//go:build linux && cgo

package nvml

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins/gpu"
)

var _ gpu.Sampler = (*Prober)(nil)

// sampling is an NVML that stays initialised between samples, with its handles.
type sampling struct {
	probe   *probe
	devices []*device
}

// Sample reads memory, utilisation and processes of each GPU. The first one initialises NVML,
// which stays so until the process ends.
func (p *Prober) Sample(ctx context.Context) (*gpu.Samples, error) {
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	if p.sampling == nil {
		if err := p.startSampling(); err != nil {
			return nil, err
		}
	}
	found := &gpu.Samples{Source: Source, GPUs: []gpu.Sample{}}
	for _, d := range p.sampling.devices {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		found.GPUs = append(found.GPUs, d.sample())
	}
	p.sampling.probe.forgetNames(found.GPUs)
	return found, nil
}

func (p *Prober) startSampling() error {
	if err := p.start(); err != nil {
		return err
	}
	r := p.newProbe()
	r.versions()
	devices, err := p.open(r)
	if err != nil {
		p.lib.Shutdown()
		return err
	}
	p.sampling = &sampling{probe: r, devices: devices}
	return nil
}

// sample reads what changes. A GPU that was lost is asked no more.
func (d *device) sample() gpu.Sample {
	lost, why := d.card.State == gpu.StateLost, d.card.Why["state"]
	c := d.card
	d.card = gpu.GPU{Index: c.Index, UUID: c.UUID, PCI: c.PCI, State: gpu.StateOK, Why: map[string]string{}}
	if lost {
		d.state(gpu.StateLost, why)
	}
	var rates *nvml.Utilization
	for _, part := range []func(){
		d.readMemory, d.readMIG, d.readProcesses,
		func() { rates = ask(d, "utilization.gpu", "nvmlDeviceGetUtilizationRates", d.GetUtilizationRates) },
	} {
		if d.alive() {
			part()
		}
	}
	s := gpu.Sample{
		Index: c.Index, UUID: c.UUID, State: d.card.State, Memory: d.card.Memory, Processes: d.card.Processes,
		Instances: d.card.MIG.Instances,
	}
	if rates != nil {
		s.Utilization = gpu.Utilization{GPU: new(int(rates.Gpu)), Memory: new(int(rates.Memory))}
	}
	d.card.Why["utilization.memory"] = d.card.Why["utilization.gpu"]
	s.Why = map[string]string{}
	for _, name := range append(s.Unknown(), "state", processMemory) {
		if reason := d.card.Why[name]; reason != "" {
			s.Why[name] = reason
		}
	}
	s.Explain(d.card.Why["state"])
	return s
}

// forgetNames keeps the names of processes that are still there: a pid is given again.
func (r *probe) forgetNames(gpus []gpu.Sample) {
	there := map[int]string{}
	for _, g := range gpus {
		for _, p := range g.Processes {
			there[p.PID] = p.Name
		}
	}
	r.names = there
}
