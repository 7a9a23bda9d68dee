package coordinator

import (
	"context"
	"testing"
)

func TestARunDoesNotBeginBeforeItsLauncherLooks(t *testing.T) {
	d := newDrill(t)
	c := &Coordinator{brain: d.b}
	d.b.unattended = true
	d.run()
	d.check("started", len(d.sent(isStart)), 0)
	c.eventsAsked = true
	c.attend()
	d.take()
	d.check("started while nobody has asked for output", len(d.sent(isStart)), 0)
	c.outputAsked = true
	c.attend()
	d.take()
	d.check("started", len(d.sent(isStart)), 3)
}

// A run of weeks is looked at often, and each task's output is asked for by who reads.
func TestWhoReadsNoMoreIsForgotten(t *testing.T) {
	c := &Coordinator{brain: newDrill(t).b}
	for range 3 {
		ctx, leave := context.WithCancel(context.Background())
		c.addReading(newReading(ctx, "r", map[int]int64{0: 0}, nil))
		leave()
	}
	if c.addReading(newReading(t.Context(), "r", nil, nil)); len(c.readings) != 1 {
		t.Errorf("%d readings are kept", len(c.readings))
	}
}
