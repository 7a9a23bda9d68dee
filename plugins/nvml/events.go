//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/plugins/gpu"
)

// kindOf are the events to watch for, nvmlEventType… of nvml.h.
var kindOf = map[uint64]string{
	nvml.EventTypeXidCriticalError:  gpu.EventXid,
	nvml.EventTypeSingleBitEccError: gpu.EventSingleBit,
	nvml.EventTypeDoubleBitEccError: gpu.EventDoubleBit,
}

const maxEvents = 256 // of one call; more come with the next

// watch is an event set that listens to GPUs. NVML stays initialised while there is one.
type watch struct {
	set         nvml.EventSet
	probe       *probe
	gpus        []*device // that are listened to
	unsupported map[string]string
}

var _ gpu.EventWatcher = (*Prober)(nil)

// WatchEvents first makes an event set that all GPUs report to, and then waits for events with
// nvmlEventSetWait_v2, or before driver 450 nvmlEventSetWait, which has no MIG instances. A GPU
// that is lost meanwhile is reported once.
func (p *Prober) WatchEvents(ctx context.Context, wait time.Duration) (*gpu.Events, error) {
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	found := []gpu.Event{}
	if p.watch != nil {
		var err error
		if found, err = p.receive(ctx, wait); err != nil {
			p.watch.set.Free()
			p.watch = nil
			p.lib.Shutdown()
			return nil, err
		}
	} else if err := p.beginWatch(); err != nil {
		return nil, err
	}
	return &gpu.Events{Events: found, Unsupported: p.watch.unsupported}, nil
}

func (p *Prober) beginWatch() (err error) {
	if err := p.start(); err != nil {
		return err
	}
	if p.watch, err = p.listen(nil); err != nil {
		p.lib.Shutdown()
	}
	return err
}

// listen makes an event set for all GPUs but those that are lost, by UUID or PCI address.
func (p *Prober) listen(lost map[string]string) (*watch, error) {
	r := p.newProbe()
	r.versions()
	for _, needed := range [][]string{{"nvmlEventSetCreate"}, {"nvmlDeviceRegisterEvents"}, {"nvmlEventSetWait_v2", "nvmlEventSetWait"}} {
		if !r.has(needed...) {
			return nil, errors.New(r.reason(needed[0], nvml.ERROR_FUNCTION_NOT_FOUND))
		}
	}
	devices, err := p.open(r)
	if err != nil {
		return nil, err
	}
	set, ret := p.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("make a set of events (NVML: %q)", ret.Error())
	}
	w := &watch{set: set, probe: r, unsupported: map[string]string{}}
	why := "there is no GPU"
	for _, d := range devices {
		reason := lost[d.name()]
		if reason == "" {
			reason = w.add(d)
		}
		if reason != "" {
			w.unsupported[d.name()] = reason
			why = reason
		}
	}
	if len(w.gpus) == 0 {
		set.Free()
		return nil, fmt.Errorf("no GPU tells of its errors: %s", why)
	}
	return w, nil
}

// name is what tells a GPU from others.
func (d *device) name() string { return cmp.Or(d.card.UUID, d.card.PCI) }

// add listens to a GPU. The reason is why that cannot be.
func (w *watch) add(d *device) (reason string) {
	if !d.alive() {
		return d.card.Why["state"]
	}
	supported := ask(d, "events", "nvmlDeviceGetSupportedEventTypes", d.GetSupportedEventTypes)
	if supported == nil {
		return d.card.Why["events"]
	}
	var wanted uint64
	for kind := range kindOf {
		wanted |= kind & *supported
	}
	if wanted == 0 {
		return "not supported by this GPU"
	}
	if ret := d.RegisterEvents(wanted, w.set); ret != nvml.SUCCESS {
		return w.probe.reason("nvmlDeviceRegisterEvents", ret)
	}
	w.gpus = append(w.gpus, d)
	return ""
}

// receive waits for the first event and takes all that are there then.
func (p *Prober) receive(ctx context.Context, wait time.Duration) ([]gpu.Event, error) {
	found := []gpu.Event{}
	end := time.Now().Add(wait)
	for len(found) < maxEvents {
		left := max(time.Until(end), 0) // nothing breaks a wait in the library off
		if len(found) > 0 {
			left = 0
		}
		data, ret := p.watch.set.Wait(uint32(left / time.Millisecond))
		switch {
		case ret == nvml.SUCCESS:
			if event, known := p.watch.event(data); known {
				found = append(found, event)
			}
		case ret == nvml.ERROR_GPU_IS_LOST:
			lost, err := p.takeOutLost()
			if err != nil && len(found)+len(lost) == 0 {
				return nil, err
			}
			return append(found, lost...), nil
		case ret != nvml.ERROR_TIMEOUT:
			return nil, fmt.Errorf("wait for events (NVML: %q)", ret.Error())
		case len(found) > 0 || !time.Now().Before(end) || ctx.Err() != nil:
			return found, nil
		}
	}
	return found, nil
}

// event reads what NVML reports; known is false for what was not asked for. Handles are
// compared, since a lost GPU does not tell what it is.
func (w *watch) event(data nvml.EventData) (e gpu.Event, known bool) {
	e.Kind, known = kindOf[data.EventType]
	e.At = bootSeconds()
	if at := slices.IndexFunc(w.gpus, func(d *device) bool { return d.Device == data.Device }); at >= 0 {
		e.UUID, e.PCI = w.gpus[at].card.UUID, w.gpus[at].card.PCI
	}
	if e.UUID == "" && e.PCI == "" && data.Device != nil {
		e.UUID, _ = data.Device.GetUUID()
	}
	if e.Kind == gpu.EventXid {
		e.Xid = int(data.EventData)
	}
	if w.probe.has("nvmlEventSetWait_v2") {
		e.GI, e.CI = instanceID(data.GpuInstanceId), instanceID(data.ComputeInstanceId)
	}
	return e, known
}

// takeOutLost finds the GPUs that do not answer, and watches the others: a set with a lost one
// reports that over and over. If no other is left, or none is lost, the watch is over.
func (p *Prober) takeOutLost() (events []gpu.Event, err error) {
	lost := map[string]string{}
	for _, d := range p.watch.gpus {
		ask(d, "uuid", "nvmlDeviceGetUUID", d.GetUUID)
		ask(d, "memory.total", "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo)
		if d.card.State == gpu.StateLost {
			lost[d.name()] = d.card.Why["state"]
			events = append(events, gpu.Event{Kind: gpu.EventLost, UUID: d.card.UUID, PCI: d.card.PCI, Text: d.card.Why["state"], At: bootSeconds()})
		}
	}
	switch {
	case len(p.watch.gpus) == 0:
		return nil, errors.New("no GPU is left that answers")
	case len(lost) == 0:
		return nil, errors.New("NVML says that a GPU is lost, and all of them answer")
	}
	maps.Copy(lost, p.watch.unsupported)
	w, err := p.listen(lost)
	if err != nil {
		p.watch.gpus, p.watch.unsupported = nil, lost
		return events, err
	}
	p.watch.set.Free()
	p.watch = w
	return events, nil
}

// bootSeconds is the time since the machine was started, sleep included.
func bootSeconds() float64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return float64(t.Sec) + float64(t.Nsec)/1e9
}
