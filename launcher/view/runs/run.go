package runs

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/view/plans"
	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
)

// Run shows a run as it goes.
type Run struct {
	screen *terminal.Screen

	turn    sync.Mutex // held while output is shown: nothing else of the run waits for who reads it
	streams map[streamKey]*terminal.Lines
	warned  bool // that output cannot be written

	mu       sync.Mutex
	id       string // of the run that is watched; "": none is
	phase    string
	plan     *plan.Plan
	ready    int // hosts whose setup is done
	stopping *countdown
	tasks    struct{ run, done, failed int }
}

type streamKey struct {
	rank   int
	stderr bool
}

// NewRun returns a view of a run on a screen.
func NewRun(screen *terminal.Screen) *Run {
	return &Run{screen: screen, streams: map[streamKey]*terminal.Lines{}}
}

// Watching says which run is shown from now on.
func (r *Run) Watching(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id = id
}

func (r *Run) watched() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// Phase says what is being done now; "" that nothing is any more.
func (r *Run) Phase(text string) {
	r.mu.Lock()
	r.phase = text
	r.mu.Unlock()
	if text != "" {
		text = "muster: " + text + " …"
	}
	r.screen.Status(text)
}

// HostDone counts hosts through the phase.
func (r *Run) HostDone(done, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all > 1 {
		r.screen.Status(fmt.Sprintf("muster: %s … %d of %d", r.phase, done, all))
	}
}

// Upload shows how far a program's copy to a host is.
func (r *Run) Upload(host, program string, done, total int64) {
	if done >= total {
		r.screen.Status("")
		return
	}
	r.screen.Status(fmt.Sprintf("muster: copying %s to %s %s", program, host, bar(done, total)))
}

func bar(done, total int64) string {
	const width = 20
	filled := int(done * width / max(total, 1))
	return fmt.Sprintf("[%-*s] %3d%%", width, string(bytes.Repeat([]byte("#"), filled)), done*100/max(total, 1))
}

// Plan shows what is about to run, in a line.
func (r *Run) Plan(p *plan.Plan) {
	r.mu.Lock()
	r.plan = p
	r.mu.Unlock()
	where := p.Hosts[0].Name
	if n := len(p.Hosts); n > 1 {
		where = fmt.Sprintf("%d hosts, %s to %s", n, p.Hosts[0].Name, p.Hosts[n-1].Name)
	}
	r.screen.Status("")
	r.Say(fmt.Sprintf("%s: %s on %s", p.Job, plans.Workers(p), where))
	for _, note := range p.Notes {
		r.Say(note.Message)
	}
	for _, warning := range p.Warnings {
		r.Say(r.screen.Err.Paint("33", "warning: ") + warning.Message)
	}
	r.Phase("getting ready")
}

// Say shows a line of muster's own.
func (r *Run) Say(text string) { r.screen.Say("%s %s", r.screen.Err.Paint("2", "muster:"), text) }

// Event shows what happened, where the user has to know.
func (r *Run) Event(e event.Event) {
	switch e.Kind {
	case event.Meeting:
		if r.plan != nil && len(r.plan.Hosts) > 1 {
			r.Say(e.Message)
		}
	case event.Prepared:
		r.hostReady()
	case event.Committed:
		r.screen.Status("")
	case event.Found:
		r.found(e.Finding)
	case event.Restarting:
		r.endCountdown()
		r.taskMoved(0, 0, -1)
		r.Say(r.screen.Err.Paint("33", "attempt failed: ") + e.Message)
	case event.Proven:
		r.Say(e.Message)
	case event.Warning, event.Lost:
		r.Say(r.screen.Err.Paint("33", "warning: ") + e.Message)
	case event.Started:
		r.taskMoved(1, 0, 0)
	case event.Ended:
		if e.Failed {
			r.Say(r.screen.Err.Paint("31", e.Message))
			r.taskMoved(-1, 0, 1)
		} else {
			r.taskMoved(-1, 1, 0)
		}
	case event.Stopping:
		r.stop(e)
	case event.Over:
		r.endCountdown()
		r.screen.Status("")
	}
}

// taskMoved shows how many of the tasks are done.
func (r *Run) taskMoved(run, done, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan == nil || len(r.plan.Tasks) == 0 {
		return
	}
	t := &r.tasks
	t.run, t.done, t.failed = t.run+run, t.done+done, t.failed+failed
	words := fmt.Sprintf("muster: %d of %s done, %d running", t.done, plural.Of(len(r.plan.Tasks), "task"), t.run)
	if t.failed > 0 {
		words += fmt.Sprintf(", %d failed", t.failed)
	}
	r.screen.Status(words)
}

// found tells of a finding. What fails is told by the report, and what is only for the
// record by muster check.
func (r *Run) found(f *report.Finding) {
	if f != nil && f.Severity == codes.Warn {
		r.Say(r.screen.Err.Paint("33", "warning: ") + f.Words())
	}
}

func (r *Run) hostReady() {
	r.mu.Lock()
	r.ready++
	ready, all := r.ready, 0
	if r.plan != nil {
		all = len(r.plan.Hosts)
	}
	r.mu.Unlock()
	r.HostDone(ready, all)
}

// countdown shows how the grace runs down.
type countdown struct {
	end  chan struct{}
	hint string
}

func (r *Run) stop(e event.Event) {
	r.endCountdown()
	grace := time.Duration(e.Grace * float64(time.Second))
	if grace == 0 {
		r.Say(e.Message)
		return
	}
	r.Say(fmt.Sprintf("%s; SIGKILL in %v to what is left", e.Message, grace))
	c := &countdown{end: make(chan struct{}), hint: "Ctrl-C twice: now"}
	if e.ByUser {
		c.hint = "Ctrl-C again: now"
	}
	r.mu.Lock()
	r.stopping = c
	r.mu.Unlock()
	go c.run(r.screen, time.Now().Add(grace))
}

func (r *Run) endCountdown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping != nil {
		close(r.stopping.end)
		r.stopping = nil
		r.screen.Status("")
	}
}

func (c *countdown) run(s *terminal.Screen, until time.Time) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-c.end:
			return
		case now := <-ticker.C:
			left := until.Sub(now).Round(time.Second)
			if left < 0 {
				return
			}
			s.Status(fmt.Sprintf("muster: workers have %v left to end by themselves (%s)", left, c.hint))
		}
	}
}

// Output shows a piece of a worker's output, line by line.
func (r *Run) Output(host string, rank int, stderr bool, data []byte, end bool) {
	r.turn.Lock()
	defer r.turn.Unlock()
	defer r.warnOfMissing()
	if end {
		for _, lane := range []bool{false, true} {
			if l := r.streams[streamKey{rank, lane}]; l != nil {
				l.End(r.liner(host, rank, lane))
			}
		}
		return
	}
	key := streamKey{rank, stderr}
	if r.streams[key] == nil {
		r.streams[key] = &terminal.Lines{}
	}
	r.streams[key].Add(data, time.Now(), r.liner(host, rank, stderr))
}

// warnOfMissing tells once that output cannot be written. Who only reads output gets an error.
func (r *Run) warnOfMissing() {
	err, id := r.screen.Missing(), r.watched()
	if err == nil || id == "" || r.warned {
		return
	}
	r.warned = true
	r.Say(r.screen.Err.Paint("33", "warning: ") + fmt.Sprintf("the output cannot be written: %v; run %s goes on, and muster logs %s has it", err, id, id))
}

// liner writes a line of a rank with its prefix, in one piece.
func (r *Run) liner(host string, rank int, stderr bool) func([]byte) {
	to := &r.screen.Out
	if stderr {
		to = &r.screen.Err
	}
	prefix := to.Paint(terminal.Colours[rank%len(terminal.Colours)], fmt.Sprintf("%s:%d|", host, rank))
	return func(line []byte) {
		if to.IsTerminal {
			line = terminal.Clean(line)
		}
		reset := ""
		if to.HasColour && bytes.IndexByte(line, 0x1b) >= 0 {
			reset = "\x1b[0m"
		}
		r.screen.Write(to, fmt.Appendf(nil, "%s %s%s\n", prefix, line, reset))
	}
}

// State shows where the run stands, on request.
func (r *Run) State(run history.Run, s event.State) {
	var b bytes.Buffer
	_ = Status(&b, Standing{Run: run, State: s, Now: time.Now(),
		Width: r.screen.Err.Width()}) // a buffer takes everything
	r.screen.Write(&r.screen.Err, b.Bytes())
}

// Report shows the end of a run that did not end well on one screen, and a line of one
// that did.
func (r *Run) Report(rep *report.Report) {
	r.endCountdown()
	r.screen.Status("")
	st := &r.screen.Err
	if rep.Outcome == report.OK {
		r.Say(st.Paint("32", endedWell(rep)))
		if err := r.screen.Missing(); err != nil {
			r.Say(st.Paint("33", "warning: ") + fmt.Sprintf("not all of its output could be written: %v; muster logs %s has it", err, rep.Run))
		}
	} else {
		r.screen.Write(st, failureScreen(st, rep))
	}
	for _, left := range rep.Left {
		r.Say(st.Paint("33", "left over: ") + left)
	}
}
