package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/library"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/restart"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Restart says when a failure is followed by another attempt. Without the block it never
// is.
type Restart struct {
	Attempts     int           // restarts in all, within the window
	Within       time.Duration // the window; 0: the whole run
	Backoff      time.Duration // before the second restart; doubles
	HealthyAfter time.Duration // an attempt that ran this long clears the count
	On           []RestartRule
	Range        hcl.Range `json:"-"`
}

// RestartRule is an on block: what a restart after failures of a class changes. Several of
// one class are a ladder.
type RestartRule struct {
	Class      string
	Attempts   int                 // restart.Unset where nothing is written
	WaitMemory time.Duration       // restart.Unset: as long as muster's own remedy waits
	Args       []string            `json:",omitempty"` // appended to the command
	NCCL       *nccl.Settings      `json:",omitempty"` // over the job's own
	Allocator  *allocator.Settings `json:",omitempty"` // over the job's own
	// Settings are all that it changes, for reports.
	Settings map[string]string `json:",omitempty"`
	Range    hcl.Range         `json:"-"`

	env hclsyntax.Expression // over the job's and the host's
}

var (
	restartSchema = decode.Schema{
		Where:  "a restart block",
		Args:   []string{"attempts", "within", "backoff", "healthy_after"},
		Blocks: []decode.BlockType{{Name: "on", Label: `"CLASS"`, Many: true}},
	}
	onSchema = decode.Schema{
		Where:  "an on block",
		Args:   []string{"attempts", "env", "args", "wait_memory"},
		Blocks: []decode.BlockType{{Name: "nccl"}, {Name: "allocator"}},
	}
)

// Defaults and bounds of a restart block.
const (
	defaultAttempts     = 3
	maxAttempts         = 1000
	defaultBackoff      = 10 * time.Second
	defaultHealthyAfter = 10 * time.Minute
	maxBackoff          = 24 * time.Hour
	maxWait             = 7 * 24 * time.Hour
	maxWindow           = 366 * 24 * time.Hour
)

// decodeRestart decodes a restart block, nil where there is none.
func decodeRestart(b *decode.Block, job *Job) *Restart {
	if b == nil {
		return nil
	}
	b.Open(restartSchema)
	r := &Restart{
		Attempts:     decodeAttempts(b.Arg("attempts"), defaultAttempts),
		Within:       decode.Duration(b.Arg("within"), 0, time.Second, maxWindow),
		Backoff:      decode.Duration(b.Arg("backoff"), defaultBackoff, 0, maxBackoff),
		HealthyAfter: decode.Duration(b.Arg("healthy_after"), defaultHealthyAfter, time.Second, maxWindow),
		Range:        b.At,
	}
	for _, on := range b.Blocks("on") {
		rule := decodeRule(on, job)
		checkRule(on, rule, r.Attempts)
		r.On = append(r.On, rule)
	}
	return r
}

// decodeAttempts is a number of restarts, or def where none is written or it is wrong.
func decodeAttempts(a *decode.Arg, def int) int {
	if n := decode.Integer(a, 0, maxAttempts); a.IsSet() && !a.Wrong() {
		return n
	}
	return def
}

// decodeRule decodes an on block.
func decodeRule(b *decode.Block, job *Job) RestartRule {
	b.Open(onSchema)
	checkClass(b)
	rule := RestartRule{
		Class:      b.Label,
		Attempts:   decodeAttempts(b.Arg("attempts"), restart.Unset),
		WaitMemory: decode.Duration(b.Arg("wait_memory"), restart.Unset, time.Second, maxWait),
		NCCL:       library.DecodeNCCL(b.Block("nccl"), job.Backend, job.Check.doubt(b.File.Evaluator)),
		Allocator:  library.DecodeAllocator(b.Block("allocator")),
		Range:      b.At,
		env:        decode.EnvExpr(b.Arg("env")),
	}
	if args := b.Arg("args"); args.IsSet() || args.Wrong() {
		rule.Args, _ = decode.Words(args, "args")
	}
	rule.Settings = ruleSettings(b.File, rule, job)
	return rule
}

// checkClass checks the label: a class, or what several of them begin with.
func checkClass(b *decode.Block) {
	if b.Bare || class.Known(b.Label) {
		return
	}
	near := nearestClass(b.Label, slices.Concat(class.Groups(), class.Names()))
	if near != "" {
		near = fmt.Sprintf(" Did you mean %q?", near)
	}
	b.File.Error(b.NameAt, "Unknown class", "There is no failure of class %s.%s The classes are %s; %s stand for all that begin so.",
		diagnostic.Quoted(b.Label), near, expr.List(class.Names()), expr.List(class.Groups()))
}

// nearestClass finds slips, and names without what stands before their dot.
func nearestClass(name string, known []string) string {
	name = strings.ToLower(strings.NewReplacer("-", "_", "/", ".").Replace(name))
	if near := text.Nearest(name, known, 2); near != "" {
		return near
	}
	for _, candidate := range known {
		if _, last, ok := strings.Cut(candidate, "."); ok && text.Nearest(name, []string{last}, 2) != "" {
			return candidate
		}
	}
	return ""
}

// checkRule warns of what has no effect.
func checkRule(b *decode.Block, rule RestartRule, attempts int) {
	f := b.File
	what, known := class.Find(rule.Class)
	lost := []string{class.HostLost, class.AgentLost, class.GPULost}
	switch {
	case known && what.Restart == class.Never && rule.Attempts != 0:
		f.Warn(b.NameAt, "Without effect", "A run is never restarted after %q: %s.", rule.Class, what.Meaning)
	case slices.Contains(lost, rule.Class) && rule.Attempts != 0:
		f.Warn(b.NameAt, "Without effect", "After %q the run ends, with the host named: another attempt would have the same hosts.", rule.Class)
	case rule.Attempts == 0 && len(rule.Settings) > 0:
		f.Warn(b.NameAt, "Without effect", "With attempts = 0 there is no attempt that these settings could be for.")
	case rule.Attempts == 0 && rule.WaitMemory != restart.Unset:
		b.Arg("wait_memory").Warn("Without effect", "With attempts = 0 there is no attempt that could wait.")
	case rule.Attempts > attempts:
		b.Arg("attempts").Warn("Without effect", "The budget of the run is attempts = %d for all classes together: set it in the restart block.", attempts)
	}
}

// ruleSettings are the changes of a rule by the names that reports have. Its env is tried
// with a rank that is not known.
func ruleSettings(f *decode.File, rule RestartRule, job *Job) map[string]string {
	settings := map[string]string{}
	if rule.env != nil {
		host := LocalName
		if len(job.Hosts) > 0 {
			host = job.Hosts[0].Name
		}
		rank := &RankScope{Global: -1, Local: -1, WorldSize: -1, HostName: host, Trial: true}
		maps.Copy(settings, envReader{f.Evaluator, f.Scope.Context(rank), job.Program == ProgramJAX}.settings(rule.env))
	}
	if len(rule.Args) > 0 {
		settings["args"] = strings.Join(rule.Args, " ")
	}
	if rule.NCCL != nil {
		for _, s := range rule.NCCL.Values {
			settings["nccl."+s.Attr] = s.Value
		}
	}
	for _, name := range library.AllocatorArgs() {
		if written, _, set := rule.Allocator.Sets(allocator.Key(name)); set {
			name, value, _ := strings.Cut(written, " = ")
			settings["allocator."+name] = strings.Trim(value, `"`)
		}
	}
	if len(settings) == 0 {
		return nil
	}
	return settings
}

// settings are the variables of a rule. What differs by rank, and what is sensitive, is
// named without its value.
func (e envReader) settings(expr hclsyntax.Expression) map[string]string {
	settings := map[string]string{}
	if object, ok := expr.(*hclsyntax.ObjectConsExpr); ok {
		for _, item := range object.Items {
			name, ok := e.file.Evaluate(item.KeyExpr, e.ctx)
			if ok && !name.IsNull() && name.Type() == cty.String && !name.IsMarked() {
				settings[name.AsString()] = "(by rank)"
			}
		}
	}
	for _, entry := range e.entries(expr) {
		switch {
		case entry.omitted:
			settings[entry.Name] = "(not set)"
		case entry.Sensitive:
			settings[entry.Name] = "(sensitive)"
		default:
			settings[entry.Name] = entry.Value
		}
	}
	return settings
}

// Rules are the block as what decides has it, nil without one.
func (r *Restart) Rules() *restart.Rules {
	if r == nil {
		return nil
	}
	rules := &restart.Rules{Attempts: r.Attempts}
	rules.Within, rules.Backoff, rules.HealthyAfter = r.Within.Seconds(), r.Backoff.Seconds(), r.HealthyAfter.Seconds()
	for _, on := range r.On {
		rule := restart.Rule{Class: on.Class, Attempts: on.Attempts, WaitMemory: restart.Unset, Settings: on.Settings}
		if on.WaitMemory != restart.Unset {
			rule.WaitMemory = on.WaitMemory.Seconds()
		}
		rules.On = append(rules.On, rule)
	}
	return rules
}
