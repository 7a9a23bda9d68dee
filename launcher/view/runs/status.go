package runs

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/view/mps"
	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
)

// Status writes where a run stands: a line for the run, a table of its ranks, and what the
// user has to know of.
func Status(w io.Writer, s Standing) error {
	fmt.Fprintf(w, "%s: %s, attempt %d, started %s ago\n", s.Run.ID, stateWord(s.State), s.State.Attempt, age(s.Run.Started, s.Now))
	if message := s.message(); message != "" {
		for line := range strings.Lines(message) {
			_, _ = w.Write(terminal.Wrapped(strings.TrimRight(line, "\n"), s.Width)) // what w does with it shows at its end
		}
	}
	if _, err := w.Write(s.ranks().Text(s.Width)); err != nil {
		return err
	}
	digestNotes(w, s.State, s.Width)
	mps.Table(w, mps.Shared(s.State))
	writeNotices(w, noticesOf(s.State, s.Now), s.Width, s.Brief)
	if s.State.Report != nil {
		return Peaks(w, s.State.Report)
	}
	return nil
}

// ranks is a line for each rank. What says most of it stands first.
func (s Standing) ranks() terminal.Columns {
	unit := "RANK"
	if s.Run.Tasks > 0 {
		unit = "TASK"
	}
	var t terminal.Columns
	s.addColumn(&t, unit, keepAlways, func(rank int, _ event.RankState) string { return fmt.Sprint(rank) })
	s.addColumn(&t, "HOST", keepHost, func(rank int, r event.RankState) string { return hostOfRank(s.Run, rank, r) })
	s.addColumn(&t, "STATE", keepState, func(_ int, r event.RankState) string { return rankWord(r) })
	s.addUse(&t)
	s.addColumn(&t, "SINCE", keepSince, func(_ int, r event.RankState) string {
		if r.Name == "" {
			return ""
		}
		return age(r.Since, s.Now)
	})
	s.addColumn(&t, "PID", keepPID, func(_ int, r event.RankState) string { return pidWord(r) })
	told := func(_ int, r event.RankState) string { return reportedText(r.Observed) }
	for _, r := range s.State.Ranks {
		if told(0, r) != "" {
			s.addColumn(&t, "TELLS", keepTells, told)
			break
		}
	}
	return t
}

// What columns of the table of ranks are worth, where there is no room for all.
const (
	keepPID = iota
	keepSince
	keepTraffic
	keepTells
	keepGPU
	keepTensors
	keepReserved
	keepState
	keepBusy
	keepHost
	keepRSS
	keepDevice
	keepHeld
	keepAlways
)

func (s Standing) addColumn(t *terminal.Columns, title string, keep int, of func(rank int, r event.RankState) string) {
	cells := make([]string, s.Run.WorldSize())
	for rank := range cells {
		cells[rank] = of(rank, s.State.Ranks[rank])
	}
	t.Add(title, keep, cells)
}

// reportedText is what a worker tells of itself, on a line.
func reportedText(o *observe.Latest) string {
	if o == nil {
		return ""
	}
	var words []string
	if o.Progress.Known() {
		words = append(words, o.Progress.String())
	}
	if o.Phase != "" {
		words = append(words, o.Phase)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Values)) {
		words = append(words, fmt.Sprintf("%s %.4g", name, float64(o.Values[name])))
	}
	if o.Torch != nil {
		words = append(words, torchText(o.Torch))
	}
	return string(terminal.Clean([]byte(strings.Join(words, ", "))))
}

// torchText is what torch tells of its devices, or why it tells nothing.
func torchText(t *observe.Torch) string {
	if len(t.Devices) == 0 {
		return "torch: " + t.Why
	}
	var words []string
	for _, d := range t.Devices {
		words = append(words, fmt.Sprintf("torch cuda:%d %.2f of %.2f GiB in use", d.Device, float64(d.Allocated)/(1<<30), float64(d.Reserved)/(1<<30)))
	}
	return strings.Join(words, ", ")
}

// hostOfRank is the name of a rank's host; a task has the one that it was started on.
func hostOfRank(run history.Run, rank int, r event.RankState) string {
	if host, settled := run.HostOf(rank); settled {
		return host.Name
	}
	return terminal.OrDash(r.Host)
}

func stateWord(s event.State) string {
	if s.Report != nil {
		return fmt.Sprintf("%s (exit status %d)", s.Report.Outcome, s.Report.Exit)
	}
	return s.Name
}

func rankWord(r event.RankState) string {
	switch {
	case r.Failed:
		return "failed"
	case r.Name == "":
		return "not started"
	}
	return r.Name
}

func pidWord(r event.RankState) string {
	if r.PID == 0 {
		return ""
	}
	return fmt.Sprint(r.PID)
}

func age(since, now time.Time) string { return span(now.Sub(since)) }

// span is a time that has passed, as exactly as that matters.
func span(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-2] // without its "0s"
}

type statusJSON struct {
	Version int              `json:"version"`
	Run     string           `json:"run"`
	Job     string           `json:"job"`
	State   string           `json:"state"`
	Message string           `json:"message"`
	Attempt int              `json:"attempt"`
	Exit    *int             `json:"exit"`
	Ranks   []statusRankJSON `json:"ranks"`
	// Findings and Warnings are what has come up so far, as in the report.
	Findings []report.Finding `json:"findings"`
	Warnings []string         `json:"warnings"`
	MPS      []report.MPSGPU  `json:"mps,omitempty"`
	Others   []otherJSON      `json:"others"`
}

// otherJSON is a process on a rank's device that is of no rank.
type otherJSON struct {
	Host   string  `json:"host"`
	Device string  `json:"device"`
	PID    int     `json:"pid"`
	User   string  `json:"user"`
	Name   string  `json:"name"`
	Bytes  *uint64 `json:"bytes"`
}

type statusRankJSON struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"`
	// Attempt is the rank's own where ranks do not talk to each other.
	Attempt int     `json:"attempt"`
	PID     int     `json:"pid,omitempty"`
	Since   float64 `json:"since,omitempty"`
	Log     string  `json:"log,omitempty"`
	// Samples is how it uses memory and its device; null: not known, as of one that has ended.
	Samples *samples.Rank `json:"samples"`
	// Observed is the newest that the worker has told of itself.
	Observed *observe.Latest `json:"observed,omitempty"`
}

// StatusJSON writes where a run stands as one JSON object (version 1).
func StatusJSON(w io.Writer, s Standing) error { return terminal.WriteJSON(w, statusOf(s)) }

func statusOf(standing Standing) statusJSON {
	run, s := standing.Run, standing.State
	out := statusJSON{Version: 1, Run: run.ID, Job: run.Job, State: runState(run, s),
		Message: standing.message(), Attempt: s.Attempt,
		Ranks: []statusRankJSON{}, Others: []otherJSON{}, MPS: mps.Shared(s), Findings: []report.Finding{},
		Warnings: []string{}}
	for _, e := range s.Notices {
		switch {
		case e.Finding != nil:
			out.Findings = append(out.Findings, *e.Finding)
		case e.Kind != event.Restarting:
			out.Warnings = append(out.Warnings, e.Message)
		}
	}
	if s.Report != nil {
		out.Exit = &s.Report.Exit
	}
	for rank := range run.WorldSize() {
		r, ok := s.Ranks[rank]
		line := statusRankJSON{Rank: rank, Host: hostOfRank(run, rank, r), State: rankWord(r)}
		if ok {
			line.Attempt = r.Attempt
			line.PID, line.Since, line.Log, line.Observed = r.PID, report.Seconds(r.Since), r.Log, r.Observed
			if used, _, known := s.Samples.Of(rank); known && r.Name == "running" {
				line.Samples = &used
			}
		}
		out.Ranks = append(out.Ranks, line)
	}
	for _, h := range hostsOf(s) {
		for _, o := range h.Others {
			out.Others = append(out.Others, otherJSON{h.Host, o.Device, o.PID, o.User, o.Name, o.Bytes})
		}
	}
	return out
}

// Listed is a run in a list, with where it stands as far as that could be learnt.
type Listed struct {
	Run   history.Run
	State event.State
}

// runState is a run's state in a word: its outcome once it is over.
func runState(run history.Run, s event.State) string {
	switch {
	case s.Report != nil:
		return s.Report.Outcome
	case run.Outcome != "":
		return run.Outcome
	}
	return s.Name
}

func exitOf(l Listed) *int {
	switch {
	case l.State.Report != nil:
		return &l.State.Report.Exit
	case l.Run.Outcome != "":
		return &l.Run.Exit
	}
	return nil
}

// Runs writes runs as a table, oldest first.
func Runs(w io.Writer, runs []Listed, now time.Time) error {
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "RUN\tSTATE\tRANKS\tHEAD HOST\tSTARTED\tEXIT")
	for _, l := range runs {
		exit := ""
		if e := exitOf(l); e != nil {
			exit = fmt.Sprint(*e)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s ago\t%s\n", l.Run.ID, runState(l.Run, l.State), l.Run.WorldSize(), l.Run.Hosts[0].Name, age(l.Run.Started, now), exit)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range runs {
		if slices.Contains([]string{event.Unknown, event.IsLost}, runState(l.Run, l.State)) {
			fmt.Fprintf(w, "%s: %s\n", l.Run.ID, l.State.Message)
		}
	}
	return nil
}

type runsJSON struct {
	Version int       `json:"version"`
	Runs    []runJSON `json:"runs"`
}

type runJSON struct {
	Run     string  `json:"run"`
	Job     string  `json:"job"`
	State   string  `json:"state"`
	Head    string  `json:"head"`
	Started float64 `json:"started"`
	Attempt int     `json:"attempt"`
	Exit    *int    `json:"exit"`
}

// RunsJSON writes runs as one JSON object (version 1), oldest first.
func RunsJSON(w io.Writer, runs []Listed) error {
	out := runsJSON{Version: 1, Runs: []runJSON{}}
	for _, l := range runs {
		out.Runs = append(out.Runs, runJSON{
			Run: l.Run.ID, Job: l.Run.Job, State: runState(l.Run, l.State), Head: l.Run.Hosts[0].Name,
			Started: report.Seconds(l.Run.Started), Attempt: max(l.State.Attempt, l.Run.Attempt), Exit: exitOf(l),
		})
	}
	return terminal.WriteJSON(w, out)
}

// Report writes a run's report as people read it.
func Report(s *terminal.Screen, rep *report.Report) {
	var b bytes.Buffer
	if rep.Outcome == report.OK {
		fmt.Fprintln(&b, endedWell(rep))
		b.WriteString(attempts(rep))
	} else {
		b.Write(failureScreen(&s.Out, rep))
	}
	mps.Table(&b, rep.MPS)
	all := findingsIn(rep)
	for _, warning := range rep.Warnings {
		all = append(all, notice{kind: "warning", text: warning})
	}
	for _, left := range rep.Left {
		all = append(all, notice{kind: "left over", text: left})
	}
	for _, n := range all {
		n.write(&b, s.OutWidth(), false)
	}
	s.Write(&s.Out, b.Bytes())
}

// endedWell says that all ranks did.
func endedWell(rep *report.Report) string {
	return fmt.Sprintf("%s: all %ss ended well", rep.Run, rep.Unit())
}

// ReportJSON writes a report as one JSON object.
func ReportJSON(w io.Writer, rep *report.Report) error { return terminal.WriteJSON(w, rep) }
