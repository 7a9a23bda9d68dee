package coordinator

import (
	"context"
	"testing"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/message"
)

func TestARunDoesNotBeginBeforeItsLauncherLooks(t *testing.T) {
	d := newDrill(t)
	c := &Coordinator{machine: d.m, outputs: outputs{send: func(string, message.Command) {}}}
	d.b.Unattended = true
	d.run()
	d.check("started", len(d.sent(isStart)), 0)
	c.audience.eventsAsked = true
	c.attend()
	if d.b.Phase != run.Gathering {
		t.Error("started while nobody has asked for output")
	}
	c.audience.outputAsked = true
	if !c.audience.attends() {
		t.Error("it does not attend")
	}
	d.next(run.Attended{})
	d.check("started", len(d.sent(isStart)), 3)
}

// A run of weeks is looked at often, and each task's output is asked for by who reads.
func TestWhoReadsNoMoreIsForgotten(t *testing.T) {
	m, o := newDrill(t).m, outputs{}
	for range 3 {
		ctx, leave := context.WithCancel(context.Background())
		o.add(newReader(ctx, &pb.LogsRequest{Ranks: []int32{0}}), m)
		leave()
	}
	if o.add(newReader(t.Context(), &pb.LogsRequest{}), m); len(o.readers) != 1 {
		t.Errorf("%d readers are kept", len(o.readers))
	}
}
