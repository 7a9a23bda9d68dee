package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/envvar"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/library"
	"github.com/muster-dev/muster/launcher/plural"
)

// forwardedFrom is the source of forwarded variables.
const forwardedFrom = "forwarded from the launching machine"

// String is the variable for people: without its value where that is a secret.
func (v EnvVar) String() string {
	if v.Sensitive {
		return v.Name + "=(sensitive)"
	}
	return v.Name + "=" + v.Value
}

// GoString is String: %#v hides secrets too.
func (v EnvVar) GoString() string { return v.String() }

// HostEnvNames are the variables of hosts that env refers to, sorted: RankScope.HostEnv has to
// have them, as far as they are set there.
func (j *Job) HostEnvNames() []string { return slices.Clone(j.hostEnv) }

// EnvOf is the job's env for one rank of the host with that index: the host
// block's env wins over the job's, which wins over what is forwarded. A null takes a
// variable out. The variables are sorted by name. Several goroutines may call it at once.
func (j *Job) EnvOf(hostIndex int, scope RankScope) ([]EnvVar, hcl.Diagnostics) {
	return j.EnvUnder(nil, hostIndex, scope)
}

// EnvUnder is EnvOf with the restart rules that are in force, by their numbers in the
// order in which they came into force: the last one wins.
func (j *Job) EnvUnder(rules []int, hostIndex int, scope RankScope) ([]EnvVar, hcl.Diagnostics) {
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
	vars := map[string]EnvVar{}
	for name, value := range j.forwarded {
		vars[name] = EnvVar{Name: name, Value: value, Source: forwardedFrom, Sensitive: true}
	}
	exprs := []hclsyntax.Expression{j.env, j.Hosts[hostIndex].env}
	for _, i := range rules {
		exprs = append(exprs, j.Restart.On[i].env)
	}
	e := envReader{expr.New(j.scope), j.scope.Context(&scope), j.Program == ProgramJAX}
	merged := e.merge(vars, exprs...)
	return merged, e.file.Diagnostics()
}

// envReader evaluates env expressions for one rank.
type envReader struct {
	file *expr.Evaluator
	ctx  *hcl.EvalContext
	jax  bool
}

// envEntry is one checked entry of an env expression.
type envEntry struct {
	EnvVar
	omitted bool // the value is null
}

// merge puts the entries of expressions, which may be nil, over variables that are there
// without them.
func (e envReader) merge(vars map[string]EnvVar, exprs ...hclsyntax.Expression) []EnvVar {
	for _, expr := range exprs {
		for _, entry := range e.entries(expr) {
			if entry.omitted {
				delete(vars, entry.Name)
			} else {
				vars[entry.Name] = entry.EnvVar
			}
		}
	}
	return slices.SortedFunc(maps.Values(vars), func(a, b EnvVar) int { return cmp.Compare(a.Name, b.Name) })
}

// entries evaluates one env expression, entry by entry where it is written out.
func (e envReader) entries(env hclsyntax.Expression) (entries []envEntry) {
	if env == nil {
		return nil
	}
	if object, ok := env.(*hclsyntax.ObjectConsExpr); ok {
		return e.writtenEntries(object)
	}
	value, ok := e.file.Evaluate(env, e.ctx)
	switch {
	case !ok || value.IsNull():
		return nil
	case value.IsMarked():
		e.sensitiveName(env)
		return nil
	case !value.Type().IsObjectType() && !value.Type().IsMapType():
		e.file.Error(env.Range(), "Wrong type", "env is an object of variables, { NAME = \"value\" }, not %s.", expr.Describe(value))
		return nil
	}
	for it := value.ElementIterator(); it.Next(); {
		key, v := it.Element()
		if e.checkName(key.AsString(), env.Range()) {
			entries = e.add(entries, key.AsString(), env.Range(), v, env)
		}
	}
	return entries
}

func (e envReader) writtenEntries(object *hclsyntax.ObjectConsExpr) (entries []envEntry) {
	places := map[string]hcl.Range{}
	for _, item := range object.Items {
		key, ok := e.file.Evaluate(item.KeyExpr, e.ctx)
		value, valueOK := e.file.Evaluate(item.ValueExpr, e.ctx)
		if !ok {
			continue
		}
		if key.IsMarked() {
			e.sensitiveName(item.KeyExpr)
			continue
		}
		at := item.KeyExpr.Range()
		name, ok := e.file.Scope.Scalar(item.KeyExpr, key)
		earlier, twice := places[name]
		switch {
		case !ok:
			e.file.Error(at, "Wrong type", "The name of a variable is text, not %s.", expr.Describe(key))
			continue
		case twice:
			e.file.ErrorAlso(at, earlier, "Repeated variable", "%s is set at %s already.", name, earlier)
			continue
		}
		places[name] = at
		if e.checkName(name, at) && valueOK {
			entries = e.add(entries, name, at, value, item.ValueExpr)
		}
	}
	return entries
}

// sensitiveName reports names of variables that come of a secret.
func (e envReader) sensitiveName(env hclsyntax.Expression) {
	e.file.Error(env.Range(), "Sensitive value",
		"The names of variables are shown, and these come of a sensitive variable. Write them out: { NAME = var.x[\"NAME\"] }.")
}

// add adds one variable where its value is good.
func (e envReader) add(
	entries []envEntry, name string, at hcl.Range, value cty.Value, env hclsyntax.Expression,
) []envEntry {
	entry := envEntry{EnvVar: EnvVar{Name: name, Source: decode.SourceAt(at), Sensitive: value.ContainsMarked()}}
	value, _ = value.UnmarkDeep()
	if value.IsNull() {
		entry.omitted = true
		return append(entries, entry)
	}
	text, ok := e.file.Scope.Scalar(env, value)
	switch at := env.Range(); {
	case !ok:
		e.file.Error(at, "Wrong type",
			"The value of %s is %s; a variable holds text. Use jsonencode(...) to pass it as JSON.", name, expr.Describe(value))
	case strings.ContainsRune(text, 0):
		e.file.Error(at, "NUL in a string", "The value of %s holds a NUL character, which no variable can.", name)
	case len(name)+len(text) > envvar.MaxLength:
		e.file.Error(at, "Value too long", "The value of %s has %d bytes; Linux takes at most %d with the name. Pass it in a file.", name, len(text), envvar.MaxLength)
	default:
		entry.Value = text
		return append(entries, entry)
	}
	return entries
}

func (e envReader) checkName(name string, at hcl.Range) bool {
	if !envvar.IsName(name) {
		e.file.Error(at, "Invalid variable name", "%q: the name of a variable is made of letters, digits and _, and does not begin with a digit.", name)
		return false
	}
	if reason := envvar.Owner(name, e.jax); reason != "" {
		e.file.Error(at, "Variable belongs to muster", "%s cannot be set in env: %s", name, reason)
		return false
	}
	return true
}

// tryEnv evaluates env as it will be for some ranks, so that its errors show
// before anything is contacted. What only the plan knows is unknown here.
func tryEnv(f *decode.File, job *Job) {
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
			rank := &RankScope{Global: before, WorldSize: world, HostName: host.Name, HostIndex: i, Trial: true}
			e := envReader{f.Evaluator, f.Scope.Context(rank), job.Program == ProgramJAX}
			vars := e.merge(map[string]EnvVar{}, job.env, host.env)
			warnOfEnv(f.Evaluator, job, host, vars)
		}
		if before += host.PerHost; host.PerHost == 0 {
			before = -len(hosts) * maxPerHost
		}
	}
}

// warnOfEnv says what libraries would make of variables that are no secrets.
func warnOfEnv(f *expr.Evaluator, job *Job, host Host, vars []EnvVar) {
	var shown []library.Var
	for _, v := range vars {
		if !v.Sensitive {
			key, at := envPlace(v, host.env, job.env)
			shown = append(shown, library.Var{Name: v.Name, Value: v.Value, Source: v.Source, Key: key, At: at})
		}
	}
	doubt := job.Check.doubt(f)
	library.WarnOfAllocator(f, job.Allocator, doubt, shown)
	if job.Backend == "" || job.Backend == "nccl" {
		library.WarnOfNCCL(f, job.NCCL, doubt, shown)
	}
}

// envPlace is where a variable is set in one of the env expressions, and where its value is
// written; both are the whole expression where it is computed.
func envPlace(v EnvVar, exprs ...hclsyntax.Expression) (key, value hcl.Range) {
	for _, expr := range exprs {
		object, ok := expr.(*hclsyntax.ObjectConsExpr)
		if !ok {
			if expr != nil && decode.SourceAt(expr.Range()) == v.Source {
				return expr.Range(), expr.Range()
			}
			continue
		}
		for _, item := range object.Items {
			at := item.KeyExpr.Range()
			name, _ := item.KeyExpr.Value(nil) // known without variables where it is written out
			isOther := name.IsKnown() && !name.IsNull() && name.Type() == cty.String && name.AsString() != v.Name
			if decode.SourceAt(at) == v.Source && !isOther {
				return at, item.ValueExpr.Range()
			}
		}
	}
	return hcl.Range{}, hcl.Range{}
}

// decodeForward decodes which variables of the launching machine go to ranks, and takes from
// those that were sent the ones that do.
func decodeForward(b *decode.Block, sent map[string]string) (patterns []string, found map[string]string) {
	a := b.Arg("forward")
	for _, e := range decode.Texts(a, "forward is a list of names and patterns such as [\"WANDB_*\", \"HF_TOKEN\"]", "A pattern of forward") {
		pattern, _ := e.Word()
		if !checkPattern(e, pattern) {
			continue
		}
		patterns = append(patterns, pattern)
		if _, set := sent[pattern]; sent != nil && !set && !strings.Contains(pattern, "*") {
			e.Warn("Nothing to forward", "%s is not set on this machine, or is no text: ranks do not get it from here.", pattern)
		}
	}
	return patterns, envvar.Forwarded(patterns, sent)
}

// checkPattern checks one element of forward.
func checkPattern(e *decode.Arg, word string) bool {
	name, _, isPattern := strings.Cut(word, "*")
	reason := envvar.Owner(word, false)
	if reason == "" && isPattern {
		reason = envvar.Owner(name+"X", false)
	}
	switch quoted := diagnostic.Quoted(word); {
	case strings.Contains(word, "="):
		e.Error("Invalid pattern", "forward has names only, their values are this machine's. To set a variable to a value, use env.")
	case strings.Trim(word, "*") == "" && word != "":
		e.Error("Invalid pattern", "%s would send every variable of this machine, which are wrong on others. Name those that are needed.", quoted)
	case !envvar.IsName(strings.ReplaceAll(word, "*", "A")):
		e.Error("Invalid pattern", "%s: a pattern is the name of a variable, in which * stands for any number of characters.", quoted)
	case reason != "":
		e.Error("Variable belongs to muster", "%s cannot be forwarded: %s", word, reason)
	default:
		return true
	}
	return false
}
