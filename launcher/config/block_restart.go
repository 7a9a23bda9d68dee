package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
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

var restartSchema = schema{
	where:  "a restart block",
	attrs:  []attrSchema{{name: "attempts"}, {name: "within"}, {name: "backoff"}, {name: "healthy_after"}},
	blocks: []blockSchema{{name: "on", label: `"CLASS"`, many: true}},
}

var onSchema = schema{
	where:  "an on block",
	attrs:  []attrSchema{{name: "attempts"}, {name: "env"}, {name: "args"}, {name: "wait_memory"}},
	blocks: []blockSchema{{name: "nccl"}, {name: "allocator"}},
}

// Defaults and bounds of a restart block.
const (
	defaultAttempts     = 3
	maxAttempts         = 1000
	defaultBackoff      = 10 * time.Second
	defaultHealthyAfter = 10 * time.Minute
	maxBackoff          = 24 * time.Hour
	maxWindow           = 366 * 24 * time.Hour
)

// restart decodes a restart block, nil where there is none.
func (d *decoder) restart(block *hclsyntax.Block, job *Job, backend string) *Restart {
	if block == nil {
		return nil
	}
	c := d.content(block.Body, block.DefRange(), restartSchema)
	r := &Restart{
		Attempts:     d.attempts(c.attrs["attempts"], defaultAttempts),
		Within:       d.duration(c.attrs["within"], 0, time.Second, maxWindow),
		Backoff:      d.duration(c.attrs["backoff"], defaultBackoff, 0, maxBackoff),
		HealthyAfter: d.duration(c.attrs["healthy_after"], defaultHealthyAfter, time.Second, maxWindow),
		Range:        block.DefRange(),
	}
	for _, on := range c.blocks["on"] {
		rule, written := d.restartRule(on, job, backend)
		d.checkRule(on, rule, written, r.Attempts)
		r.On = append(r.On, rule)
	}
	return r
}

// attempts is a number of restarts, or def where none is written or it is wrong.
func (d *decoder) attempts(attr *hclsyntax.Attribute, def int) int {
	known := len(d.diags)
	if n := d.integer(attr, 0, maxAttempts); d.isSet(attr) && len(d.diags) == known {
		return n
	}
	return def
}

// restartRule decodes an on block.
func (d *decoder) restartRule(block *hclsyntax.Block, job *Job, backend string) (RestartRule, content) {
	c := d.content(block.Body, block.DefRange(), onSchema)
	rule := RestartRule{
		Class:      d.failureClass(block),
		Attempts:   d.attempts(c.attrs["attempts"], restart.Unset),
		WaitMemory: d.duration(c.attrs["wait_memory"], restart.Unset, time.Second, 7*24*time.Hour),
		Args:       d.ruleArgs(c.attrs["args"]),
		NCCL:       d.nccl(first(c.blocks["nccl"]), backend),
		Allocator:  d.allocator(first(c.blocks["allocator"])),
		Range:      block.DefRange(),
		env:        d.envExpr(c.attrs["env"]),
	}
	rule.Settings = d.ruleSettings(rule, job)
	return rule, c
}

// failureClass is the label: a class, or what several of them begin with.
func (d *decoder) failureClass(block *hclsyntax.Block) string {
	name, at := label(block)
	if len(block.Labels) == 0 || class.Known(name) {
		return name
	}
	known := slices.Concat(class.Groups(), class.Names())
	near := ""
	if candidate := nearestClass(name, known); candidate != "" {
		near = fmt.Sprintf(" Did you mean %q?", candidate)
	}
	d.error(at, "Unknown class", "There is no failure of class %s.%s The classes are %s; %s stand for all that begin so.",
		quoted(name), near, strings.Join(slices.Sorted(slices.Values(class.Names())), ", "), strings.Join(slices.Sorted(slices.Values(class.Groups())), ", "))
	return name
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

// ruleArgs are words that are appended to the command.
func (d *decoder) ruleArgs(attr *hclsyntax.Attribute) []string {
	if attr == nil || !d.isSet(attr) {
		return nil
	}
	words, ok := d.elements(attr.Expr)
	if !ok {
		d.noWordList(attr)
		return nil
	}
	var args []string
	for _, word := range words {
		args = append(args, d.word(word, "args"))
	}
	return args
}

// checkRule warns of what has no effect.
func (d *decoder) checkRule(block *hclsyntax.Block, rule RestartRule, c content, attempts int) {
	_, at := label(block)
	what, known := class.Find(rule.Class)
	lost := []string{class.HostLost, class.AgentLost, class.GPULost}
	switch {
	case known && what.Restart == class.Never && rule.Attempts != 0:
		d.warn(at, "Without effect", "A run is never restarted after %q: %s.", rule.Class, what.Meaning)
	case slices.Contains(lost, rule.Class) && rule.Attempts != 0:
		d.warn(at, "Without effect", "After %q the run ends, with the host named: another attempt would have the same hosts.", rule.Class)
	case rule.Attempts == 0 && len(rule.Settings) > 0:
		d.warn(at, "Without effect", "With attempts = 0 there is no attempt that these settings could be for.")
	case rule.Attempts == 0 && rule.WaitMemory != restart.Unset:
		d.warn(c.attrs["wait_memory"].Expr.Range(), "Without effect", "With attempts = 0 there is no attempt that could wait.")
	case rule.Attempts > attempts:
		d.warn(c.attrs["attempts"].Expr.Range(), "Without effect", "The budget of the run is attempts = %d for all classes together: set it in the restart block.", attempts)
	}
}

// ruleSettings are the changes of a rule by the names that reports have. Its env is tried
// with a rank that is not known.
func (d *decoder) ruleSettings(rule RestartRule, job *Job) map[string]string {
	settings := map[string]string{}
	if rule.env != nil {
		host := LocalName
		if len(job.Hosts) > 0 {
			host = job.Hosts[0].Name
		}
		rank := &RankScope{Global: -1, Local: -1, WorldSize: -1, HostName: host, trial: true}
		d.envSettings(settings, rule.env, d.childContext(rank))
	}
	if len(rule.Args) > 0 {
		settings["args"] = strings.Join(rule.Args, " ")
	}
	if rule.NCCL != nil {
		for _, s := range rule.NCCL.Values {
			settings["nccl."+s.Attr] = s.Value
		}
	}
	for _, attr := range allocatorSchema.attrs {
		if written, _, set := rule.Allocator.Sets(allocator.Key(attr.name)); set {
			name, value, _ := strings.Cut(written, " = ")
			settings["allocator."+name] = strings.Trim(value, `"`)
		}
	}
	if len(settings) == 0 {
		return nil
	}
	return settings
}

// envSettings are the variables of a rule. What differs by rank, and what is sensitive, is
// named without its value.
func (d *decoder) envSettings(settings map[string]string, expr hclsyntax.Expression, ctx *hcl.EvalContext) {
	if object, ok := unwrap(expr).(*hclsyntax.ObjectConsExpr); ok {
		for _, item := range object.Items {
			if name, ok := d.evaluate(item.KeyExpr, ctx); ok && !name.IsNull() && !name.IsMarked() {
				if text, ok := d.scope.scalar(item.KeyExpr, name); ok {
					settings[text] = "(by rank)"
				}
			}
		}
	}
	for _, entry := range d.envEntries(expr, ctx) {
		switch {
		case entry.omitted:
			settings[entry.Name] = "(not set)"
		case entry.Sensitive:
			settings[entry.Name] = "(sensitive)"
		default:
			settings[entry.Name] = entry.Value
		}
	}
}

// Rules are the block as what decides has it, nil without one.
func (r *Restart) Rules() *restart.Rules {
	if r == nil {
		return nil
	}
	rules := &restart.Rules{Attempts: r.Attempts, Within: r.Within.Seconds(), Backoff: r.Backoff.Seconds(), HealthyAfter: r.HealthyAfter.Seconds()}
	for _, on := range r.On {
		rule := restart.Rule{Class: on.Class, Attempts: on.Attempts, WaitMemory: restart.Unset, Settings: on.Settings}
		if on.WaitMemory != restart.Unset {
			rule.WaitMemory = on.WaitMemory.Seconds()
		}
		rules.On = append(rules.On, rule)
	}
	return rules
}

// EnvUnder is EnvOf with the restart rules that are in force, by their numbers in the
// order in which they came into force: the last one wins.
func (j *Job) EnvUnder(rules []int, hostIndex int, scope RankScope) ([]EnvVar, hcl.Diagnostics) {
	vars, diags := j.EnvOf(hostIndex, scope)
	if len(rules) == 0 || diags.HasErrors() || j.Restart == nil {
		return vars, diags
	}
	merged := map[string]EnvVar{}
	for _, v := range vars {
		merged[v.Name] = v
	}
	d := &decoder{scope: j.scope}
	for _, i := range rules {
		for _, entry := range d.envEntries(j.Restart.On[i].env, j.scope.context(envBudget, &scope)) {
			if entry.omitted {
				delete(merged, entry.Name)
			} else {
				merged[entry.Name] = entry.EnvVar
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(merged), func(a, b EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return sorted, append(diags, tidy(d.diags)...)
}
