package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/zclconf/go-cty/cty"
)

// EnvOf is the job's env for one rank of the host with that index: the host
// block's env wins over the job's, which wins over what is forwarded. A null takes a
// variable out. The variables are sorted by name. Several goroutines may call it at once.
func (j *Job) EnvOf(hostIndex int, scope RankScope) ([]EnvVar, hcl.Diagnostics) {
	if hostIndex < 0 || hostIndex >= len(j.Hosts) {
		return nil, hcl.Diagnostics{{
			Severity: hcl.DiagError,
			Summary:  "No such host",
			Detail:   fmt.Sprintf("The job has %s, there is none with index %d.", plural.Of(len(j.Hosts), "host"), hostIndex),
		}}
	}
	if j.scope == nil {
		return nil, nil
	}
	d := &decoder{scope: j.scope}
	vars := d.envOver(j.forwardedVars(), j.env, j.Hosts[hostIndex].env, j.scope.context(envBudget, &scope))
	return vars, tidy(d.diags)
}

// mergedEnv evaluates both env expressions; either may be nil.
func (d *decoder) mergedEnv(job, host hclsyntax.Expression, ctx *hcl.EvalContext) []EnvVar {
	return d.envOver(map[string]EnvVar{}, job, host, ctx)
}

// envOver is mergedEnv over variables that are there without it.
func (d *decoder) envOver(merged map[string]EnvVar, job, host hclsyntax.Expression, ctx *hcl.EvalContext) []EnvVar {
	for _, expr := range []hclsyntax.Expression{job, host} {
		for _, entry := range d.envEntries(expr, ctx) {
			if entry.omitted {
				delete(merged, entry.Name)
			} else {
				merged[entry.Name] = entry.EnvVar
			}
		}
	}
	return slices.SortedFunc(maps.Values(merged), func(a, b EnvVar) int { return cmp.Compare(a.Name, b.Name) })
}

// envEntry is one checked entry of an env expression.
type envEntry struct {
	EnvVar
	omitted bool // the value is null
}

// envEntries evaluates one env expression, entry by entry where it is written out.
func (d *decoder) envEntries(expr hclsyntax.Expression, ctx *hcl.EvalContext) []envEntry {
	if expr == nil {
		return nil
	}
	if object, ok := unwrap(expr).(*hclsyntax.ObjectConsExpr); ok {
		return d.writtenEntries(object, ctx)
	}
	value, ok := d.evaluate(expr, ctx)
	switch {
	case !ok || value.IsNull():
		return nil
	case value.IsMarked():
		d.sensitiveName(expr)
		return nil
	case !value.Type().IsObjectType() && !value.Type().IsMapType():
		d.error(expr.Range(), "Wrong type", "env is an object of variables, { NAME = \"value\" }, not %s.", describe(value))
		return nil
	}
	var entries []envEntry
	for it := value.ElementIterator(); it.Next(); {
		key, v := it.Element()
		entries = d.addEntry(entries, key.AsString(), expr, v, expr)
	}
	return entries
}

func (d *decoder) writtenEntries(object *hclsyntax.ObjectConsExpr, ctx *hcl.EvalContext) []envEntry {
	var entries []envEntry
	places := map[string]hcl.Range{}
	for _, item := range object.Items {
		key, ok := d.evaluate(item.KeyExpr, ctx)
		value, valueOK := d.evaluate(item.ValueExpr, ctx)
		if !ok {
			continue
		}
		if key.IsMarked() {
			d.sensitiveName(item.KeyExpr)
			continue
		}
		name, ok := d.scope.scalar(item.KeyExpr, key)
		if !ok {
			d.error(item.KeyExpr.Range(), "Wrong type", "The name of a variable is text, not %s.", describe(key))
			continue
		}
		if earlier, twice := places[name]; twice {
			d.errorAlso(item.KeyExpr.Range(), earlier, "Repeated variable", "%s is set at %s already.", name, earlier)
			continue
		}
		places[name] = item.KeyExpr.Range()
		if valueOK {
			entries = d.addEntry(entries, name, item.KeyExpr, value, item.ValueExpr)
		} else {
			d.checkEnvName(name, item.KeyExpr.Range())
		}
	}
	return entries
}

// addEntry adds one variable where it is good.
func (d *decoder) addEntry(entries []envEntry, name string, nameExpr hclsyntax.Expression, value cty.Value, valueExpr hclsyntax.Expression) []envEntry {
	if !d.checkEnvName(name, nameExpr.Range()) {
		return entries
	}
	at := nameExpr.Range()
	entry := envEntry{EnvVar: EnvVar{Name: name, Source: fmt.Sprintf("%s:%d", at.Filename, at.Start.Line), Sensitive: value.ContainsMarked()}}
	value, _ = value.UnmarkDeep()
	if value.IsNull() {
		entry.omitted = true
		return append(entries, entry)
	}
	text, ok := d.scope.scalar(valueExpr, value)
	switch {
	case !ok:
		d.error(valueExpr.Range(), "Wrong type",
			"The value of %s is %s; a variable holds text. Use jsonencode(...) to pass it as JSON.", name, describe(value))
		return entries
	case strings.ContainsRune(text, 0):
		d.error(valueExpr.Range(), "NUL in a string", "The value of %s holds a NUL character, which no variable can.", name)
		return entries
	case len(name)+len(text) > maxArgument-2:
		d.error(valueExpr.Range(), "Value too long", "The value of %s has %d bytes; Linux takes at most %d with the name. Pass it in a file.", name, len(text), maxArgument-2)
		return entries
	}
	entry.Value = text
	return append(entries, entry)
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *decoder) checkEnvName(name string, at hcl.Range) bool {
	if !envName.MatchString(name) {
		d.error(at, "Invalid variable name", "%q: the name of a variable is made of letters, digits and _, and does not begin with a digit.", name)
		return false
	}
	reason := ownedBy(name)
	if d.program == ProgramJAX && reason == "" {
		reason = ownedByJAX[name]
	}
	if reason != "" {
		d.error(at, "Variable belongs to muster", "%s cannot be set in env: %s", name, reason)
		return false
	}
	return true
}

// envExpr checks the names of an env attribute and returns its expression, nil
// where there is nothing to evaluate.
func (d *decoder) envExpr(attr *hclsyntax.Attribute) hclsyntax.Expression {
	if attr == nil || attr.Expr == nil {
		return nil
	}
	d.place = inEnv
	defer func() { d.place = inJob }()
	object, ok := unwrap(attr.Expr).(*hclsyntax.ObjectConsExpr)
	if !ok {
		if !d.checkNames(attr.Expr) {
			return nil
		}
		return attr.Expr
	}
	for i, item := range object.Items {
		if !d.checkNames(item.KeyExpr) {
			object.Items[i].KeyExpr = unknownAt(item.KeyExpr)
		}
		if !d.checkNames(item.ValueExpr) {
			object.Items[i].ValueExpr = unknownAt(item.ValueExpr)
		}
	}
	return object
}

// unknownAt stands for an expression that has errors, so that those of the rest
// are found.
func unknownAt(expr hclsyntax.Expression) hclsyntax.Expression {
	return &hclsyntax.LiteralValueExpr{Val: cty.DynamicVal, SrcRange: expr.Range()}
}

// tryEnv evaluates env as it will be for some ranks, so that its errors show
// before anything is contacted. What only the plan knows is unknown here.
func (d *decoder) tryEnv(job *Job) {
	hosts := job.Hosts
	if len(hosts) == 0 {
		hosts = []Host{{Name: LocalName}}
	}
	world := job.worldSize()
	if world == 0 {
		world = -1
	}
	before := 0
	for i, host := range hosts {
		if i == 0 || i == len(hosts)-1 || host.env != nil {
			rank := &RankScope{Global: before, WorldSize: world, HostName: host.Name, HostIndex: i, trial: true}
			vars := slices.DeleteFunc(d.mergedEnv(job.env, host.env, d.childContext(rank)), func(v EnvVar) bool { return v.Sensitive })
			d.warnOfNCCL(job, host, vars)
			d.warnOfAllocator(job, host, vars)
		}
		if before += host.PerHost; host.PerHost == 0 {
			before = -len(hosts) * maxPerHost
		}
	}
}

// childContext adds a rank to the decoder's own context, so that all trials spend
// from one meter.
func (d *decoder) childContext(rank *RankScope) *hcl.EvalContext { return rank.context(d.ctx) }

// worldSize is the number of ranks, or of tasks where there are some; 0 where the plan
// decides it.
func (j *Job) worldSize() int {
	if len(j.Tasks) > 0 {
		return len(j.Tasks)
	}
	size := 0
	for _, host := range j.Hosts {
		if host.PerHost == 0 {
			return 0
		}
		size += host.PerHost
	}
	return size
}
