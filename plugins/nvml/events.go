//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/plugins/gpu"
)

// kindOf are the types of events that are listened to, nvmlEventType… of nvml.h.
var kindOf = map[uint64]string{
	nvml.EventTypeXidCriticalError:  gpu.EventXid,
	nvml.EventTypeSingleBitEccError: gpu.EventSingleBit,
	nvml.EventTypeDoubleBitEccError: gpu.EventDoubleBit,
}

// mostEvents is how many events are told at once; more come with the next call.
const mostEvents = 256

// watch is an event set that listens to GPUs. NVML stays initialised while there is one.
type watch struct {
	set         nvml.EventSet
	probe       *probe
	gpus        []*device // that are listened to
	unsupported map[string]string
}

var _ gpu.EventWatcher = (*Prober)(nil)

// WatchEvents makes an event set (nvmlEventSetCreate) and has all GPUs report to it
// (nvmlDeviceRegisterEvents); from the second call on it waits for what they report
// (nvmlEventSetWait_v2, or of drivers before 450 nvmlEventSetWait, which tells no MIG
// instance). A GPU that is lost meanwhile is told as an event, once.
func (p *Prober) WatchEvents(ctx context.Context, wait time.Duration) (*gpu.Events, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.watch == nil {
		err := p.beginWatch()
		if err != nil {
			return nil, err
		}
		return &gpu.Events{Events: []gpu.Event{}, Unsupported: p.watch.unsupported}, nil
	}
	found, err := p.hear(ctx, wait)
	if err != nil {
		p.endWatch()
		return nil, err
	}
	return &gpu.Events{Events: found, Unsupported: p.watch.unsupported}, nil
}

func (p *Prober) beginWatch() error {
	if p.lib == nil {
		lib, err := load(p.path)
		if err != nil {
			return err
		}
		p.lib = lib
	}
	if ret := p.lib.Init(); ret != nvml.SUCCESS {
		return initError(ret)
	}
	w, err := p.listen(nil)
	if err != nil {
		p.lib.Shutdown()
		return err
	}
	p.watch = w
	return nil
}

func (p *Prober) endWatch() {
	if p.watch != nil {
		p.watch.set.Free()
		p.watch = nil
		p.lib.Shutdown()
	}
}

// listen makes an event set for all GPUs but those that are known to be lost, by UUID or
// PCI address.
func (p *Prober) listen(lost map[string]string) (*watch, error) {
	r := &probe{lib: p.lib, names: map[int]string{}, all: &gpu.Inventory{Why: map[string]string{}}}
	r.versions()
	for _, needed := range [][]string{{"nvmlEventSetCreate"}, {"nvmlDeviceRegisterEvents"}, {"nvmlEventSetWait_v2", "nvmlEventSetWait"}} {
		if !r.has(needed...) {
			return nil, errors.New(r.reason(needed[0], nvml.ERROR_FUNCTION_NOT_FOUND))
		}
	}
	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count the GPUs (NVML: %q)", ret.Error())
	}
	set, ret := p.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("make a set of events (NVML: %q)", ret.Error())
	}
	w := &watch{set: set, probe: r, unsupported: map[string]string{}}
	devices := make([]*device, count)
	for i := range devices {
		devices[i] = r.open(i)
	}
	p.identify(r, devices)
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
func (d *device) name() string {
	if d.card.UUID != "" {
		return d.card.UUID
	}
	return d.card.PCI
}

// add listens to a GPU. The reason is why that cannot be.
func (w *watch) add(d *device) (reason string) {
	if !d.alive() {
		return d.card.Why["state"]
	}
	var wanted uint64
	supported := ask(d, "events", "nvmlDeviceGetSupportedEventTypes", d.GetSupportedEventTypes)
	if supported == nil {
		return d.card.Why["events"]
	}
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

// hear waits for the first event and takes all that are there then.
func (p *Prober) hear(ctx context.Context, wait time.Duration) ([]gpu.Event, error) {
	found := []gpu.Event{}
	end := time.Now().Add(wait)
	for len(found) < mostEvents {
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

// event reads what NVML tells; known is false for what was not asked for. The handle is
// compared first, since a GPU that is lost does not tell what it is.
func (w *watch) event(data nvml.EventData) (e gpu.Event, known bool) {
	e.Kind, known = kindOf[data.EventType]
	e.At = bootSeconds()
	for _, d := range w.gpus {
		if d.Device == data.Device {
			e.UUID, e.PCI = d.card.UUID, d.card.PCI
		}
	}
	if e.UUID == "" && e.PCI == "" && data.Device != nil {
		e.UUID, _ = data.Device.GetUUID()
	}
	if e.Kind == gpu.EventXid {
		e.Xid = int(data.EventData)
	}
	if data.GpuInstanceId != noInstance && w.probe.has("nvmlEventSetWait_v2") {
		e.GI = new(int(data.GpuInstanceId))
	}
	if data.ComputeInstanceId != noInstance && e.GI != nil {
		e.CI = new(int(data.ComputeInstanceId))
	}
	return e, known
}

// takeOutLost finds out which GPUs do not answer, and goes on to listen to the others: a
// set with a lost one in it says so again and again. Where no other is left, or none is
// found to be lost, the watch is over.
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
	if len(p.watch.gpus) == 0 {
		return nil, errors.New("no GPU is left that answers")
	}
	if len(lost) == 0 {
		return nil, errors.New("NVML says that a GPU is lost, and all of them answer")
	}
	for name, reason := range p.watch.unsupported {
		lost[name] = reason
	}
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
