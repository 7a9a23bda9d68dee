//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-dev/muster/plugins"
)

var _ plugins.GPUSampler = (*Prober)(nil)

// sampling is an NVML that stays initialised between samples, with its handles.
type sampling struct {
	probe   *probe
	devices []*device
}

// Sample reads memory, utilisation and processes of each GPU. The first one calls nvmlInit
// and opens the handles; NVML stays so until the process ends.
func (p *Prober) Sample(ctx context.Context) (*plugins.GPUSamples, error) {
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	if p.sampling == nil {
		if err := p.startSampling(); err != nil {
			return nil, err
		}
	}
	found := &plugins.GPUSamples{Source: Source, GPUs: []plugins.GPUSample{}}
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
	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		p.lib.Shutdown()
		return fmt.Errorf("count the GPUs (NVML: %q)", ret.Error())
	}
	s := &sampling{probe: r}
	for i := range count {
		s.devices = append(s.devices, r.open(i))
	}
	p.identify(r, s.devices)
	p.sampling = s
	return nil
}

// sample reads what changes. A GPU that was lost is asked no more.
func (d *device) sample() plugins.GPUSample {
	lost, why := d.gpu.State == plugins.StateLost, d.gpu.Why["state"]
	d.gpu = plugins.GPU{Index: d.gpu.Index, UUID: d.gpu.UUID, PCI: d.gpu.PCI, State: plugins.StateOK, Why: map[string]string{}}
	if lost {
		d.state(plugins.StateLost, why)
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
	s := plugins.GPUSample{Index: d.gpu.Index, UUID: d.gpu.UUID, State: d.gpu.State, Memory: d.gpu.Memory, Processes: d.gpu.Processes, Instances: d.gpu.MIG.Instances}
	if rates != nil {
		s.Utilization = plugins.Utilization{GPU: new(int(rates.Gpu)), Memory: new(int(rates.Memory))}
	}
	d.gpu.Why["utilization.memory"] = d.gpu.Why["utilization.gpu"]
	s.Why = map[string]string{}
	for _, name := range append(s.Unknown(), "state", processMemory) {
		if reason := d.gpu.Why[name]; reason != "" {
			s.Why[name] = reason
		}
	}
	s.Explain(d.gpu.Why["state"])
	return s
}

// forgetNames keeps the names of processes that are still there: a pid is given again.
func (r *probe) forgetNames(gpus []plugins.GPUSample) {
	there := map[int]string{}
	for _, g := range gpus {
		for _, p := range g.Processes {
			there[p.PID] = p.Name
		}
	}
	r.names = there
}
