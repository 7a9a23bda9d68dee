package coordinator

import "testing"

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
