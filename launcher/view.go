package launcher

import (
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/report"
)

// View shows a launch to the user. Calls come from several goroutines.
type View interface {
	// Phase says what is being done now; it stands until the next one, "" ends it.
	Phase(text string)
	// HostDone says how many of all hosts have got through the phase.
	HostDone(done, all int)
	// Plan shows what is about to run.
	Plan(p *plan.Plan)
	// Watching says which run is shown from now on.
	Watching(run string)
	// Event shows what happened.
	Event(e event.Event)
	// Output shows a piece of a worker's output as it came; end is set after the last.
	Output(host string, rank int, stderr bool, data []byte, end bool)
	// State shows where the run stands.
	State(page history.Run, s event.State)
	// Report shows the end of the run.
	Report(r *report.Report)
	// Say shows a line of the launcher's own.
	Say(text string)
}
