// Package library decodes the blocks of a job file about the libraries that ranks use: nccl,
// allocator and memory.
package library

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/quantity"
	"github.com/muster-dev/muster/launcher/internal/text"
)

var ncclSchema = schemaOfNCCL()

func schemaOfNCCL() decode.Schema {
	s := decode.Schema{Where: "an nccl block", Elsewhere: map[string]string{
		"bufsize": "buffer_size", "buff_size": "buffer_size", "buffer": "buffer_size",
		"min_channels": "min_ctas", "min_nchannels": "min_ctas", "nccl_min_nchannels": "min_ctas",
		"max_channels": "max_ctas", "max_nchannels": "max_ctas", "nccl_max_nchannels": "max_ctas"}}
	for _, a := range nccl.Attributes {
		s.Args = append(s.Args, a.Name)
		// What people know is the variable's name, with or without what all begin with.
		full := strings.ToLower(a.Variable)
		_, short, _ := strings.Cut(full, "nccl_")
		for _, name := range []string{full, short} {
			if name != a.Name {
				s.Elsewhere[name] = a.Name
			}
		}
	}
	for name, here := range s.Elsewhere {
		s.Elsewhere[name] = here + " = ..."
	}
	s.Hint = s.Allowed() + " Other variables of NCCL and torch can be set in env."
	return s
}

// Doubt reports a finding about a value of the job file as its check block wants it.
type Doubt func(code string, at hcl.Range, title, format string, args ...any)

// Var is a variable that env sets, with the places of its name and its value.
type Var struct {
	Name, Value, Source string
	Key, At             hcl.Range
}

// DecodeNCCL decodes an nccl block, nil where there is none. backend is the job's, "" where the
// plan chooses it.
func DecodeNCCL(b *decode.Block, backend string, doubt Doubt) *nccl.Settings {
	if b == nil {
		return nil
	}
	b.Open(ncclSchema)
	s := &nccl.Settings{}
	for _, attr := range nccl.Attributes {
		a := b.Arg(attr.Name)
		value := ncclValue(a, attr)
		if a.Wrong() || value == "" {
			continue
		}
		s.Values = append(s.Values, nccl.Setting{Attr: attr.Name, Value: value, Source: a.Source()})
		adviseNCCL(a, attr, value, doubt)
	}
	if backend != "" && backend != "nccl" {
		b.File.Warn(b.TypeAt, "No effect", "The job's backend is %q, which does not use NCCL. Take the nccl block out.", backend)
	}
	checkNCCLPairs(b, s)
	return s
}

// ncclValue is an argument as its variable has it, "" where it is not set.
func ncclValue(a *decode.Arg, attr nccl.Attribute) string {
	if _, isList := a.Elements(); !isList && !a.IsSet() {
		return ""
	}
	switch attr.Form {
	case nccl.AsSwitch:
		return ncclSwitch(decode.Bool(a, false))
	case nccl.AsSize:
		return strconv.FormatUint(decode.Size(a, 0, uint64(attr.Low), uint64(attr.High)), 10)
	case nccl.AsMode, nccl.AsNumber:
		if on, isBool := a.Truth(); isBool && attr.Form == nccl.AsMode {
			return ncclSwitch(on)
		}
		return strconv.Itoa(decode.Integer(a, int(attr.Low), int(attr.High)))
	case nccl.AsWord:
		return decode.OneOf(a, "", attr.Words())
	case nccl.AsPath:
		return ncclPath(a)
	case nccl.AsSeconds:
		return ncclTime(a, attr, time.Second)
	case nccl.AsMilliseconds:
		return ncclTime(a, attr, time.Millisecond)
	}
	return ncclList(a, attr)
}

func ncclSwitch(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// ncclTime is a time in the variable's unit.
func ncclTime(a *decode.Arg, attr nccl.Attribute, unit time.Duration) string {
	t := decode.Duration(a, 0, time.Duration(attr.Low)*unit, time.Duration(attr.High)*unit)
	if t%unit != 0 {
		a.Error("Invalid time", "%s is read in units of %s: write a multiple, such as %q.", a.Name, unit, quantity.Duration(t.Truncate(unit)+unit))
	}
	return strconv.FormatInt(int64(t/unit), 10)
}

// ncclPath is a file on the hosts. Nobody expands "~" there.
func ncclPath(a *decode.Arg) string {
	path := decode.Text(a)
	switch {
	case strings.HasPrefix(path, "~"):
		a.Error("Invalid path", "%s is read by a library, which does not know ~: write the path in full.", a.Name)
	case path == "" && !a.Wrong():
		a.Error("Invalid path", "%s is empty: write a path, or leave it out.", a.Name)
	}
	return path
}

// ncclList is an argument that is text as NCCL has it, or a list of texts. A list of interfaces
// or devices is those and no others, where NCCL by itself would take names that begin so.
func ncclList(a *decode.Arg, attr nccl.Attribute) string {
	if word, isText := a.Word(); isText {
		decode.Text(a)
		if word == "" && attr.Form == nccl.AsNames {
			a.Error("Invalid value", "%s is empty: name something, or leave it out.", a.Name)
		}
		checkNCCLNames(a, attr, strings.Split(word, ","))
		return word
	}
	elements, isList := a.Elements()
	if !isList {
		a.Error("Wrong type", "%s is a list of texts such as %s, or one text as NCCL has it, not %s.", a.Name, attr.Example, a.Describe())
		return ""
	}
	if len(elements) == 0 {
		a.Error("Invalid value", "%s is empty: name something, such as %s, or leave it out.", a.Name, attr.Example)
	}
	var words []string
	for _, e := range elements {
		word, isText := e.Word()
		switch {
		case e.Wrong():
		case !isText:
			e.Error("Wrong type", "%s is a list of texts such as %s; this is %s.", a.Name, attr.Example, e.Describe())
		case word == "" || strings.ContainsAny(word, ", \t\x00"):
			e.Error("Invalid value", "An element of %s is one name, without spaces and commas, not %s.", a.Name, diagnostic.Quoted(word))
		default:
			words = append(words, word)
		}
	}
	checkNCCLNames(a, attr, words)
	if attr.Form != nccl.AsNames {
		return strings.Join(words, ",")
	}
	if slices.ContainsFunc(words, func(word string) bool { return word[0] == '^' || word[0] == '=' }) {
		a.Error("Invalid value", "A list is exactly these names; to leave some out, or to take all that begin alike, write text as NCCL has it: \"^docker\" or \"eth\".")
	}
	return nccl.Names{Exact: true, Names: words}.String()
}

// checkNCCLNames checks words of a list that NCCL knows, with "^" for those to leave out.
func checkNCCLNames(a *decode.Arg, attr nccl.Attribute, words []string) {
	for _, word := range words {
		name := strings.TrimPrefix(word, "^")
		if attr.Form == nccl.AsWordList && !slices.Contains(attr.Words(), name) {
			a.Error("Invalid value", "%s cannot have %s.%s There are %s.", a.Name, diagnostic.Quoted(word), text.DidYouMean(name, attr.Words()), strings.Join(attr.Words(), ", "))
		}
	}
}

// adviseNCCL says what is to be known of a value that is otherwise right, and what is wrong
// with words that only NCCL's own table knows.
func adviseNCCL(a *decode.Arg, attr nccl.Attribute, value string, doubt Doubt) {
	if n, err := strconv.ParseUint(value, 10, 64); attr.Form == nccl.AsSize && err == nil && n&(n-1) != 0 {
		below := uint64(1)
		for below<<1 <= n {
			below <<= 1
		}
		a.Warn("Odd buffer size", "NCCL's documentation advises powers of two for %s, such as %q.", a.Name, quantity.FormatSize(below))
	}
	for _, found := range nccl.Check(attr.Variable, value, nccl.Version{}) {
		if found.Code == nccl.CodeWord || found.Code == nccl.CodeList {
			a.Error("Invalid value", "%s", sentences(found))
		} else {
			doubt(found.Code, a.At, "Dangerous value", "%s", sentences(found))
		}
	}
}

// ncclPairs are arguments of which one makes another senseless, with the reason.
var ncclPairs = []struct {
	attr, value string // this one, with that value ("" for any)
	other       string
	wrong       bool // they contradict each other; else other has no effect
	why         string
}{
	{"p2p_disable", "1", "p2p_level", true, "P2P is off altogether with p2p_disable. Keep one of the two: p2p_level = \"NVL\" leaves NVLink on and PCIe off."},
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

// checkNCCLPairs reports arguments that do not go together.
func checkNCCLPairs(b *decode.Block, s *nccl.Settings) {
	for _, pair := range ncclPairs {
		one, ok1 := s.Get(pair.attr)
		other, ok2 := s.Get(pair.other)
		if !ok1 || !ok2 || pair.value != "" && one.Value != pair.value {
			continue
		}
		at, also := b.Arg(pair.other).NameAt, b.Arg(pair.attr).NameAt
		switch {
		case pair.wrong:
			b.File.ErrorAlso(at, also, "Conflicting arguments", "%s at %s and %s exclude each other. %s", pair.attr, also, pair.other, pair.why)
		case other.Value != "0":
			b.File.Warn(at, "No effect", "%s does nothing here: %s", pair.other, pair.why)
		}
	}
	low, _ := s.Get("min_ctas")
	high, _ := s.Get("max_ctas")
	least, err1 := strconv.Atoi(low.Value)
	limit, err2 := strconv.Atoi(high.Value)
	if err1 == nil && err2 == nil && least > limit {
		also := b.Arg("min_ctas").NameAt
		b.Arg("max_ctas").ErrorAlso(also, "Conflicting arguments", "max_ctas is %d, less than min_ctas at %s, which is %d.", limit, also, least)
	}
}

// WarnOfNCCL says what is to be known of variables in env that NCCL or torch read: that
// they win over the nccl block, and what the libraries would make of their values.
func WarnOfNCCL(f *expr.Evaluator, settings *nccl.Settings, doubt Doubt, vars []Var) {
	for _, v := range vars {
		if !nccl.Concerns(v.Name) {
			continue
		}
		if setting, ok := settings.Sets(v.Name); ok {
			f.Warn(v.Key, "Set twice", "%s is set here and by %s of the nccl block at %s: env wins. Keep one of the two.", v.Name, setting.Attr, setting.Source)
		}
		for _, found := range nccl.Check(v.Name, v.Value, nccl.Version{}) {
			if found.Code == nccl.CodeUnknown {
				doubt(found.Code, v.Key, "Unknown NCCL variable", "%s", sentences(found))
			} else {
				doubt(found.Code, v.At, "Dangerous value", "%s", sentences(found))
			}
		}
	}
}

// sentences are what a finding says and what to do.
func sentences(f nccl.Finding) string {
	return sentence(f.Message) + " " + sentence(expr.Capital(f.Fix))
}

// sentence ends words with a stop, unless they are a question.
func sentence(words string) string {
	if strings.HasSuffix(words, "?") {
		return words
	}
	return words + "."
}
