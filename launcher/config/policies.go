package config

import (
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/failure/progress"
)

var (
	stopSchema      = decode.Schema{Where: "a stop block", Args: []string{"grace", "signal"}}
	earlyExitSchema = decode.Schema{Where: "an early_exit block", Args: []string{"notice", "limit"}}
	hangSchema      = decode.Schema{
		Where:     "a hang block",
		Args:      []string{"silence", "action", "stacks", "signal"},
		Elsewhere: map[string]string{"timeout": `silence = "10m"`, "after": `silence = "10m"`, "limit": `silence = "10m"`},
	}
	progressSchema = decode.Schema{Where: "a progress block", Args: []string{"pattern", "folder"}}
	observeSchema  = decode.Schema{Where: "an observe block", Args: []string{"torch", "snapshot"}}
	logsSchema     = decode.Schema{Where: "a logs block", Args: []string{"show"}}
)

// Defaults and bounds of these blocks.
const (
	defaultGrace       = 30 * time.Second
	maxGrace           = 24 * time.Hour
	defaultSignal      = "SIGTERM"
	defaultEarlyNotice = 30 * time.Second
	defaultEarlyLimit  = 10 * time.Minute
	maxEarly           = 30 * 24 * time.Hour
	defaultSilence     = 10 * time.Minute
	minSilence         = 2 * time.Second
	maxSilence         = 30 * 24 * time.Hour
	maxPattern         = 1000 // it is tried on every line that a rank writes
)

var stopSignals = []string{"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT"}

func decodeStop(b *decode.Block) Stop {
	b.Open(stopSchema)
	return Stop{
		Grace:  decode.Duration(b.Arg("grace"), defaultGrace, 0, maxGrace),
		Signal: decode.OneOf(b.Arg("signal"), defaultSignal, stopSignals),
	}
}

func decodeEarlyExit(b *decode.Block) EarlyExit {
	b.Open(earlyExitSchema)
	return EarlyExit{
		Notice: decode.Duration(b.Arg("notice"), defaultEarlyNotice, 0, maxEarly),
		Limit:  decode.Duration(b.Arg("limit"), defaultEarlyLimit, time.Second, maxEarly),
	}
}

// Hang says when nothing moves any more, and what happens then.
type Hang struct {
	Silence time.Duration // without output, progress and work
	Action  string        // HangReport unless set
	Stacks  bool          // where ranks are is found out; true unless set
	Signal  string        // that has programs which catch it say so: "SIGUSR1" unless set, "SIGUSR2", NoSignal
}

// NoSignal is a program that is sent no signal.
const NoSignal = "none"

// What happens when nothing moves any more.
const (
	HangReport  = "report"  // it is said
	HangRestart = "restart" // the attempt has failed, and the restart block decides
	HangStop    = "stop"    // the run has failed
)

// decodeHang decodes a hang block, nil where there is none. restarts is whether there is a
// restart block.
func decodeHang(b *decode.Block, restarts bool) *Hang {
	if b == nil {
		return nil
	}
	b.Open(hangSchema)
	h := &Hang{
		Silence: decode.Duration(b.Arg("silence"), defaultSilence, minSilence, maxSilence),
		Action:  decode.OneOf(b.Arg("action"), HangReport, []string{HangReport, HangRestart, HangStop}),
		Stacks:  decode.Bool(b.Arg("stacks"), true),
		Signal:  decode.OneOf(b.Arg("signal"), "SIGUSR1", []string{"SIGUSR1", "SIGUSR2", NoSignal}),
	}
	if a := b.Arg("signal"); !h.Stacks && a.IsSet() {
		a.Warn("No effect", "With stacks = false no program is asked where it is.")
	}
	if h.Action == HangRestart && !restarts {
		b.File.Missing(b.Arg("action").At, "No restart block", "action = \"restart\" leaves it to the restart block how often and with what changes, and there is none: write restart { attempts = 1 }.")
	}
	return h
}

// Progress says how one sees how far a run is.
type Progress struct {
	Pattern progress.Pattern // of a line; the zero value knows the usual forms
	Folder  string           // of checkpoints, on each host; "" for none
}

func decodeProgress(b *decode.Block) Progress {
	b.Open(progressSchema)
	p := Progress{Folder: decode.Path(b.Arg("folder"))}
	a := b.Arg("pattern")
	text := decode.Text(a)
	if !a.IsSet() || a.Wrong() {
		return p
	}
	pattern, err := progress.Compile(text)
	switch {
	case text == "":
		a.Error("Invalid pattern", "pattern is empty: write what a line of progress looks like, such as \"step ([0-9]+)\", or leave it out for the usual forms.")
	case len(text) > maxPattern:
		a.Error("Invalid pattern", "A pattern has at most %d characters, as it is tried on every line.", maxPattern)
	case err != nil:
		a.Error("Invalid pattern", "%s.", expr.Capital(strings.TrimSuffix(err.Error(), ".")))
	default:
		p.Pattern = pattern
	}
	return p
}

// Observe says what workers are made to tell of themselves.
type Observe struct {
	Torch    bool // torch's own numbers of GPU memory
	Snapshot bool // a file of torch's memory_snapshot on growth and out of memory
}

func decodeObserve(b *decode.Block) Observe {
	if b == nil {
		return Observe{}
	}
	b.Open(observeSchema)
	o := Observe{Torch: decode.Bool(b.Arg("torch"), false), Snapshot: decode.Bool(b.Arg("snapshot"), false)}
	switch {
	case o.Snapshot && !o.Torch:
		b.Arg("snapshot").NoEffect("Without effect", "snapshot is written by what observe { torch = true } puts into the workers: set torch too.")
	case len(b.Args()) == 0:
		b.File.Warn(b.At, "Without effect", "An observe block asks for something: torch = true has each rank tell what torch holds of GPU memory. Steps and values that programs tell need no block.")
	}
	return o
}

// decodeLogs decodes a logs block. worldSize is 0 where the plan decides it.
func decodeLogs(b *decode.Block, worldSize int) Logs {
	b.Open(logsSchema)
	a := b.Arg("show")
	text, ok := rankList(a)
	if !ok {
		return Logs{}
	}
	set, err := ParseRankSet(text)
	if err != nil {
		a.Error("Invalid ranks", "%s.", expr.Capital(err.Error()))
	}
	if last := set.Last(); worldSize > 0 && last >= worldSize {
		a.Warn("No such rank", "There is no rank %d: this job has the ranks 0 to %d.", last, worldSize-1)
	}
	return Logs{Show: set}
}

// rankList is a set of ranks as text: written so, as a number, or as a list.
func rankList(a *decode.Arg) (string, bool) {
	text, ok := a.Scalar()
	elements, isList := a.Elements()
	_, isBool := a.Truth()
	switch {
	case ok && !isBool:
		return text, true
	case !isList && !a.IsSet():
		return "", false
	case !isList:
		a.Error("Wrong type", "show is \"all\", \"none\", ranks such as \"0,3-5\", or a list of ranks, not %s.", a.Describe())
		return "", false
	}
	var parts []string
	for _, e := range elements {
		part, ok := e.Scalar()
		if _, isBool := e.Truth(); isBool || !ok {
			if !e.Wrong() {
				e.Error("Wrong type", "A rank is a number, not %s.", e.Describe())
			}
			return "", false
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "none", true
	}
	return strings.Join(parts, ","), true
}
