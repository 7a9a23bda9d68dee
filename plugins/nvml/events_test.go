//go:build linux && cgo

package nvml

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/muster-dev/muster/plugins/gpu"
)

// said is one return of nvmlEventSetWait.
type said struct {
	data nvml.EventData
	ret  nvml.Return
}

// telling has a machine whose GPUs support all events, and whose event sets say these one
// after the other, then nothing. What was registered is told by index.
func telling(m *machine, script ...said) (registered map[int]uint64, freed *int) {
	registered, freed = map[int]uint64{}, new(int)
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
				if len(script) == 0 {
					time.Sleep(min(time.Duration(ms)*time.Millisecond, 10*time.Millisecond))
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				next := script[0]
				script = script[1:]
				return next.data, next.ret
			},
			FreeFunc: func() nvml.Return { *freed++; return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	for i, card := range m.gpus {
		card.GetSupportedEventTypesFunc = told(uint64(nvml.EventTypeAll))
		card.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
			registered[i] = types
			return nvml.SUCCESS
		}
	}
	return registered, freed
}

func event(card nvml.Device, kind, data uint64) said {
	return said{nvml.EventData{Device: card, EventType: kind, EventData: data, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}, nvml.SUCCESS}
}

var nothing = said{ret: nvml.ERROR_TIMEOUT}

// watched begins a watch.
func watched(t *testing.T, p *Prober) *gpu.Events {
	t.Helper()
	begun, err := p.WatchEvents(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "events at the beginning", len(begun.Events), 0)
	return begun
}

func TestWhatTheDriverReportsIsToldWithItsGPU(t *testing.T) {
	m := dgx(3)
	instance := event(m.gpus[1], nvml.EventTypeXidCriticalError, 94)
	instance.data.GpuInstanceId, instance.data.ComputeInstanceId = 2, 0
	registered, _ := telling(m, event(m.gpus[2], nvml.EventTypeXidCriticalError, 79), instance, event(m.gpus[0], nvml.EventTypeDoubleBitEccError, 0),
		event(m.gpus[0], nvml.EventTypeSingleBitEccError, 0), event(m.gpus[0], nvml.EventTypeClock, 0), nothing, event(m.gpus[0], nvml.EventTypeXidCriticalError, 13))
	p := m.prober(t)
	watched(t, p)
	all := uint64(nvml.EventTypeXidCriticalError | nvml.EventTypeSingleBitEccError | nvml.EventTypeDoubleBitEccError)
	same(t, "registered", registered, map[int]uint64{0: all, 1: all, 2: all})

	heard, err := p.WatchEvents(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "events", len(heard.Events), 4)
	first := heard.Events[0]
	if first.At <= 0 {
		t.Error("it is not told when that was")
	}
	first.At = 0
	same(t, "Xid", first, gpu.Event{Kind: gpu.EventXid, UUID: "GPU-2", PCI: "0000:09:00.0", Xid: 79})
	same(t, "instance", []int{*heard.Events[1].GI, *heard.Events[1].CI}, []int{2, 0})
	same(t, "errors of memory", []string{heard.Events[2].Kind, heard.Events[3].Kind}, []string{gpu.EventDoubleBit, gpu.EventSingleBit})
	heard, _ = p.WatchEvents(t.Context(), 0)
	same(t, "the next Xid", heard.Events[0].Xid, 13)
	same(t, "starts and ends", []int{m.inits, m.downs}, []int{1, 0})
}

func TestNothingIsToldOnceTheWaitIsOver(t *testing.T) {
	m := dgx(1)
	telling(m)
	p := m.prober(t)
	watched(t, p)
	heard, err := p.WatchEvents(t.Context(), 30*time.Millisecond)
	if err != nil || heard.Events == nil || len(heard.Events) != 0 {
		t.Errorf("%+v, %v", heard, err)
	}
}

// Before 450 the wait tells no MIG instance: what stands there is not written.
func TestAnOldDriversEventsAreOfWholeGPUs(t *testing.T) {
	m := dgx(1)
	m.lacks = append(m.lacks, "nvmlEventSetWait_v2")
	old := event(m.gpus[0], nvml.EventTypeXidCriticalError, 79)
	old.data.GpuInstanceId, old.data.ComputeInstanceId = 0, 0
	telling(m, old)
	p := m.prober(t)
	watched(t, p)
	heard, err := p.WatchEvents(t.Context(), time.Minute)
	if err != nil || len(heard.Events) != 1 || heard.Events[0].GI != nil || heard.Events[0].CI != nil || heard.Events[0].Xid != 79 {
		t.Errorf("%+v, %v", heard, err)
	}
}

func TestGPUsOfWhichNothingIsHeardAreNamed(t *testing.T) {
	m := dgx(4)
	registered, _ := telling(m)
	m.gpus[0].GetSupportedEventTypesFunc = says[uint64](nvml.ERROR_NOT_SUPPORTED)
	m.gpus[1].GetSupportedEventTypesFunc = told(uint64(nvml.EventTypeClock))
	m.gpus[2].RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_NO_PERMISSION }
	m.gpus[3].GetSupportedEventTypesFunc = told(uint64(nvml.EventTypeXidCriticalError | nvml.EventTypeClock))
	p := m.prober(t)
	begun := watched(t, p)
	same(t, "registered", registered, map[int]uint64{3: nvml.EventTypeXidCriticalError})
	same(t, "unsupported", begun.Unsupported["GPU-0"]+"; "+begun.Unsupported["GPU-1"], "not supported by this GPU; not supported by this GPU")
	if !strings.Contains(begun.Unsupported["GPU-2"], "may not ask") || begun.Unsupported["GPU-3"] != "" {
		t.Errorf("unsupported to %v", begun.Unsupported)
	}
}

func TestWhyNobodyWatchesIsSaidAndNVMLIsLeft(t *testing.T) {
	for want, change := range map[string]func(m *machine){
		"has no nvmlEventSetCreate":   func(m *machine) { m.lacks = append(m.lacks, "nvmlEventSetCreate") },
		"driver 550.54.15 is too old": func(m *machine) { m.lacks = append(m.lacks, "nvmlEventSetWait", "nvmlEventSetWait_v2") },
		"not supported by this GPU":   func(m *machine) { m.gpus[0].GetSupportedEventTypesFunc = told(uint64(0)) },
		"count the GPUs":              func(m *machine) { m.DeviceGetCountFunc = says[int](nvml.ERROR_UNKNOWN) },
		"make a set of events":        func(m *machine) { m.EventSetCreateFunc = says[nvml.EventSet](nvml.ERROR_UNKNOWN) },
		"no GPU tells of its errors: NVML ": func(m *machine) {
			m.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
		},
	} {
		m := dgx(1)
		telling(m)
		change(m)
		_, err := m.prober(t).WatchEvents(t.Context(), 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		same(t, "starts and ends", []int{m.inits, m.downs}, []int{1, 1})
	}
}

func TestALostGPUIsToldOnceAndTheOthersAreStillHeard(t *testing.T) {
	m := dgx(2)
	lost := said{ret: nvml.ERROR_GPU_IS_LOST}
	registered, freed := telling(m, event(m.gpus[1], nvml.EventTypeXidCriticalError, 79), lost, event(m.gpus[0], nvml.EventTypeXidCriticalError, 31), nothing, lost, lost)
	p := m.prober(t)
	watched(t, p)
	m.gpus[1].GetMemoryInfoFunc = says[nvml.Memory](nvml.ERROR_GPU_IS_LOST)
	heard, err := p.WatchEvents(t.Context(), time.Minute)
	if err != nil || len(heard.Events) != 2 || heard.Events[1].Kind != gpu.EventLost || heard.Events[1].UUID != "GPU-1" || heard.Events[1].Text == "" {
		t.Fatalf("%+v, %v", heard, err)
	}
	if heard.Unsupported["GPU-1"] == "" || *freed != 1 {
		t.Errorf("the lost one is still listened to: unsupported to %v, %d sets freed", heard.Unsupported, *freed)
	}
	clear(registered)
	if heard, err = p.WatchEvents(t.Context(), time.Minute); err != nil || len(heard.Events) != 1 || heard.Events[0].Xid != 31 {
		t.Errorf("%+v, %v", heard, err)
	}
	m.gpus[0].GetMemoryInfoFunc = says[nvml.Memory](nvml.ERROR_GPU_IS_LOST)
	heard, err = p.WatchEvents(t.Context(), time.Minute)
	if err != nil || !slices.ContainsFunc(heard.Events, func(e gpu.Event) bool { return e.UUID == "GPU-0" }) {
		t.Errorf("%+v, %v", heard, err)
	}
	if _, err := p.WatchEvents(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "no GPU is left") {
		t.Errorf("%v", err)
	}
	same(t, "starts and ends", []int{m.inits, m.downs}, []int{1, 1})
}
