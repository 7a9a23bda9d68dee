package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/gang"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
)

// started brings a run of two hosts with two GPUs each to its workers.
func (d *drill) started() *drill {
	for host := range 2 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	for rank := range 4 {
		d.news(rank/2, message.Update{Started: &message.Started{Rank: rank, PID: 100 + rank}})
	}
	return d
}

// reports has a host's driver report something.
func (d *drill) reports(host int, e message.DeviceEvent) { d.news(host, message.Update{Device: &e}) }

func (d *drill) warnings() (all []string) {
	for _, a := range d.all {
		if a.Event != nil && a.Event.Kind == event.Warning {
			all = append(all, a.Event.Message)
		}
	}
	return all
}

func xid(uuid string, number int) message.DeviceEvent {
	return message.DeviceEvent{Event: gpu.Event{Kind: gpu.EventXid, UUID: uuid, Xid: number}}
}

func TestWhatTheDriverReportsIsANoticeUntilAWorkerDies(t *testing.T) {
	d := newGPUDrill(t).started()
	d.after(5 * time.Second)
	d.reports(1, xid(gpuUUID(1, 1), 79))
	d.reports(1, xid(gpuUUID(1, 1), 79))
	d.reports(1, xid(gpuUUID(1, 0), 45))
	d.reports(1, xid("GPU-of-nobody", 79))
	if all := d.warnings(); len(all) != 1 || !strings.Contains(all[0], "b: GPU 1 ("+gpuUUID(1, 1)+"): the driver reported Xid 79") {
		t.Errorf("%q", all)
	}
	if d.b.Phase != run.Running {
		t.Errorf("phase %d", d.b.Phase)
	}
	d.after(5 * time.Second)
	d.ended(3, message.Ended{Code: 1, Evidence: &evidence.Worker{}})
	found, _ := d.core.Diagnosis.First()
	if found.Rank != 3 || found.Host != "b" || found.Verdict.Class != class.GPULost || found.At != 5 {
		t.Errorf("%+v", found)
	}
	d.ended(2, message.Ended{Code: 1, Sent: "SIGTERM", Evidence: &evidence.Worker{}})
	if found, _ := d.core.Diagnosis.First(); len(found.Consequences) != 1 || found.Consequences[0].Verdict.Class != class.Stopped {
		t.Errorf("the neighbour's end: %+v", found.Consequences)
	}
}

func TestWhatWasReportedInAnEarlierAttemptCountsNoMore(t *testing.T) {
	d := newGPUDrill(t).started()
	d.reports(0, xid(gpuUUID(0, 0), 79))
	d.b.Attempt++
	for _, k := range d.b.Ranks {
		k.Attempt++
	}
	d.m.(*gang.Gang).Begin()
	d.reports(0, xid(gpuUUID(0, 0), 48)) // of attempt 0, on its way
	d.news(0, message.Update{Ended: &message.Ended{Attempt: 1, Code: 1, Evidence: &evidence.Worker{}}})
	if found, _ := d.core.Diagnosis.First(); found.Verdict.Class != class.Exit {
		t.Errorf("%+v", found.Verdict)
	}
}

func TestErrorsOfMemoryAndLossesAreEvidence(t *testing.T) {
	for _, e := range []struct {
		want  string
		event message.DeviceEvent
		seen  *evidence.Devices
	}{
		{want: class.GPUECC, event: message.DeviceEvent{Event: gpu.Event{Kind: gpu.EventDoubleBit, UUID: gpuUUID(0, 1)}}},
		{want: class.GPUECC, seen: &evidence.Devices{ECC: map[string]uint64{gpuUUID(0, 1): 2}}},
		{want: class.GPULost, event: message.DeviceEvent{Event: gpu.Event{Kind: gpu.EventLost, PCI: "0000:02:00.0", Text: "GPU is lost"}}},
		{want: class.Exit, event: message.DeviceEvent{Event: gpu.Event{Kind: gpu.EventSingleBit, UUID: gpuUUID(0, 1)}}, seen: &evidence.Devices{ECC: map[string]uint64{gpuUUID(0, 0): 2, gpuUUID(0, 1): 0}}},
	} {
		d := newGPUDrill(t).started()
		if e.event.Kind != "" {
			d.reports(0, e.event)
			if len(d.warnings()) != 1 {
				t.Errorf("%s: %q", e.want, d.warnings())
			}
		}
		d.ended(1, message.Ended{Code: 1, Evidence: &evidence.Worker{Devices: e.seen}})
		if found, _ := d.core.Diagnosis.First(); found.Verdict.Class != e.want {
			t.Errorf("%s, want %s: %+v", found.Verdict.Class, e.want, found.Verdict)
		}
	}
}

func TestTheLooksAroundADeathReachTheEvidence(t *testing.T) {
	d := newGPUDrill(t).started()
	uuid := gpuUUID(0, 1)
	look := func(used uint64, held ...gpu.Holder) *gpu.Usage {
		return &gpu.Usage{Used: map[string]uint64{uuid: used}, Holders: held}
	}
	d.ended(1, message.Ended{Code: 1, Evidence: &evidence.Worker{Devices: &evidence.Devices{
		Before:   look(79<<30, gpu.Holder{UUID: uuid, PID: 101, Rank: 1, Bytes: new(uint64(70 << 30))}, gpu.Holder{UUID: uuid, PID: 9, Rank: gpu.Nobody, User: "eve"}),
		After:    look(9<<30, gpu.Holder{UUID: uuid, PID: 9, Rank: gpu.Nobody, User: "eve"}),
		NoEvents: "too old", NoAfter: "late",
	}}})
	e := d.core.Diagnosis.Evidence(1)
	g := e.GPUs[1]
	if g.Before == nil || g.Before.Used != 79<<30 || len(g.Before.Processes) != 2 || !g.Before.Processes[0].Own || g.After == nil || g.After.Used != 9<<30 || g.After.Total != 80<<30 || g.After.Processes[0].User != "eve" {
		t.Errorf("before %+v, after %+v", g.Before, g.After)
	}
	if e.NoEvents != "too old" || e.Devices.NoAfter != "late" || e.GPUs[0].After != nil {
		t.Errorf("%+v", e.Evidence)
	}
	d.b.Ranks[1].Ended.Evidence.Devices.NoEvents = ""
	d.b.Ranks[1].Ended.Evidence.Devices.Unsupported = map[string]string{gpuUUID(0, 0): "not this one", gpuUUID(0, 1): "no events of the product"}
	if e := d.core.Diagnosis.Evidence(1); e.NoEvents != "no events of the product" {
		t.Errorf("nothing is heard of its GPU, and the evidence says %q", e.NoEvents)
	}
}
