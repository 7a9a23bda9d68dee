package config

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/muster-dev/muster/launcher/check/nccl"
)

// ncclPairs are attributes of which one makes another senseless, with the reason.
var ncclPairs = []struct {
	attr, value string // this one, with that value ("" for any)
	other       string
	wrong       bool // they contradict each other; else other has no effect
	why         string
}{
	{"p2p_disable", "1", "p2p_level", true, "P2P is off altogether with p2p_disable. Keep one of the two: p2p_level = \"NVL\" leaves NVLink on and PCIe off."},
	{"max_ctas", "", "max_channels", true, "They are two names of one limit: keep max_ctas."},
	{"min_ctas", "", "min_channels", true, "They are two names of one limit: keep min_ctas."},
	{"ib_disable", "1", "ib_hca", false, "InfiniBand and RoCE are off with ib_disable."},
	{"ib_disable", "1", "ib_gid_index", false, "InfiniBand and RoCE are off with ib_disable."},
	{"ib_disable", "1", "net_gdr_level", false, "InfiniBand and RoCE are off with ib_disable."},
	{"blocking_wait", "1", "async_error_handling", false, "torch turns it off where blocking_wait is on."},
	{"blocking_wait", "1", "desync_debug", false, "torch turns it off where blocking_wait is on."},
	{"heartbeat_monitor", "0", "heartbeat_timeout", false, "Nothing watches the watchdog with heartbeat_monitor = false."},
	{"heartbeat_monitor", "0", "dump_on_timeout", false, "The monitor writes the dump, and heartbeat_monitor is false."},
	{"trace_buffer_events", "0", "dump_on_timeout", false, "Nothing is recorded with trace_buffer_events = 0."},
	{"trace_buffer_events", "0", "trace_file", false, "Nothing is recorded with trace_buffer_events = 0."},
}

// ncclConflicts reports attributes that do not go together.
func (d *decoder) ncclConflicts(c content, s *nccl.Settings) {
	for _, pair := range ncclPairs {
		one, ok1 := s.Get(pair.attr)
		other, ok2 := s.Get(pair.other)
		if !ok1 || !ok2 || pair.value != "" && one.Value != pair.value {
			continue
		}
		at, also := c.attrs[pair.other].NameRange, c.attrs[pair.attr].NameRange
		switch {
		case pair.wrong:
			d.errorAlso(at, also, "Conflicting arguments", "%s at %s and %s exclude each other. %s", pair.attr, also, pair.other, pair.why)
		case other.Value != "0":
			d.warn(at, "No effect", "%s does nothing here: %s", pair.other, pair.why)
		}
	}
	d.ncclLimits(c, s, "min_ctas", "max_ctas")
	d.ncclLimits(c, s, "min_channels", "max_channels")
}

func (d *decoder) ncclLimits(c content, s *nccl.Settings, low, high string) {
	one, _ := s.Get(low)
	other, _ := s.Get(high)
	least, err1 := strconv.Atoi(one.Value)
	most, err2 := strconv.Atoi(other.Value)
	if err1 == nil && err2 == nil && least > most {
		also := c.attrs[low].NameRange
		d.errorAlso(c.attrs[high].Expr.Range(), also, "Conflicting arguments", "%s is %d, less than %s at %s, which is %d.", high, most, low, also, least)
	}
}

// warnOfNCCL says what is to be known of variables in env that NCCL or torch read: that
// they win over the nccl block, and what the libraries would make of their values.
func (d *decoder) warnOfNCCL(job *Job, host Host, vars []EnvVar) {
	if job.Backend != "" && job.Backend != "nccl" {
		return
	}
	for _, v := range vars {
		if !nccl.Concerns(v.Name) {
			continue
		}
		key, value := envPlace(v, host.env, job.env)
		if setting, ok := job.NCCL.Sets(v.Name); ok {
			d.warn(key, "Set twice", "%s is set here and by %s of the nccl block at %s: env wins. Keep one of the two.", v.Name, setting.Attr, setting.Source)
		}
		for _, f := range nccl.Check(v.Name, v.Value, nccl.Version{}) {
			if f.Code == nccl.CodeUnknown {
				d.doubt(job.Check, f.Code, key, "Unknown NCCL variable", "%s", sentences(f))
			} else {
				d.doubt(job.Check, f.Code, value, "Dangerous value", "%s", sentences(f))
			}
		}
	}
}

// sentences are what a finding says and what to do.
func sentences(f nccl.Finding) string { return sentence(f.Message) + " " + sentence(capital(f.Fix)) }

// sentence ends words with a stop, unless they are a question.
func sentence(words string) string {
	if strings.HasSuffix(words, "?") {
		return words
	}
	return words + "."
}

// envPlace is where a variable is set in one of the env expressions, and where its value is
// written; both are the whole expression where it is computed.
func envPlace(v EnvVar, exprs ...hclsyntax.Expression) (key, value hcl.Range) {
	for _, expr := range exprs {
		if expr == nil {
			continue
		}
		object, ok := unwrap(expr).(*hclsyntax.ObjectConsExpr)
		if !ok {
			if sourceAt(expr.Range()) == v.Source {
				return expr.Range(), expr.Range()
			}
			continue
		}
		for _, item := range object.Items {
			at := item.KeyExpr.Range()
			if name := writtenKey(item.KeyExpr); sourceAt(at) == v.Source && (name == "" || name == v.Name) {
				return at, item.ValueExpr.Range()
			}
		}
	}
	return hcl.Range{}, hcl.Range{}
}

// writtenKey is the name that a key is written as, "" where it is computed.
func writtenKey(expr hclsyntax.Expression) string {
	expr = unwrap(expr)
	if key, ok := expr.(*hclsyntax.ObjectConsKeyExpr); ok {
		if word := hcl.ExprAsKeyword(key); word != "" {
			return word
		}
		expr = unwrap(key.Wrapped)
	}
	template, ok := expr.(*hclsyntax.TemplateExpr)
	if !ok || !template.IsStringLiteral() {
		return ""
	}
	return template.Parts[0].(*hclsyntax.LiteralValueExpr).Val.AsString()
}
