package allocator

import (
	"fmt"
	"slices"
	"strings"
)

// Var is a variable to set.
type Var struct {
	Name, Value string
	Source      string // of all its parts
}

// Vars are the variables by which a version of torch, "" for one that is not known, is told
// the settings, in torch's own form and with the keys only that it knows. They hold what
// others have set too, key by key: below is what the settings win over (the host's own
// environment, setup), above what wins over them (the job's env). Findings say what does
// not become as it is asked for, and what is wrong with the result. Without a setting that
// can be written there is nothing to set, and what others have set stays as it is.
func (s *Settings) Vars(torch string, below, above []Given) ([]Var, []Finding) {
	if s == nil {
		return nil, nil
	}
	v := parseVersion(torch)
	kept, found := s.known(v)
	if len(kept) == 0 {
		return nil, found
	}
	m := merge{version: v, findings: found}
	m.under(below)
	m.add(kept)
	if !m.over(above, kept) {
		return nil, m.findings
	}
	m.findings = append(m.findings, Check(m.pairs.Format(), torch)...)
	return m.vars(), m.findings
}

// known are the settings that the version reads, with findings for the others.
func (s *Settings) known(v version) (kept []own, found []Finding) {
	all := s.list()
	var pairs Pairs
	for _, o := range all {
		pairs = append(pairs, o.Pair)
	}
	for _, o := range all {
		problem := v.leaveOut(o, pairs)
		if problem == nil {
			kept = append(kept, o)
			continue
		}
		found = append(found, *problem)
	}
	if !v.known() && len(kept) > 0 {
		found = append(found, finding(CodeNoVersion, Info, "",
			"which torch the ranks use is not known: the allocator's settings are written as %s and newer read them, under both names", assumed))
	}
	return kept, found
}

// leaveOut is why a setting cannot be written for the version, nil where it can.
func (v version) leaveOut(o own, pairs Pairs) *Finding {
	k := keyNamed(o.Key)
	release := v
	if !v.known() {
		release = assumed
	}
	if !k.in(release) {
		return v.tooNew(o, k)
	}
	for _, f := range checkPair(o.Pair, pairs, release) {
		if f.Severity == Fail {
			f.Severity = Warn
			f.Message = fmt.Sprintf("%s (%s) is left out: %s", o.written, o.source, f.Message)
			return &f
		}
	}
	return nil
}

// tooNew says that the version does not know a setting.
func (v version) tooNew(o own, k *key) *Finding {
	because := fmt.Sprintf("%s does not know %s, which is there since %s, and would stop at it", v, k.name, k.since)
	if !v.known() {
		because = fmt.Sprintf("which torch the ranks use is not known, and before %s it stops at %s", k.since, k.name)
	}
	f := finding(CodeVersion, Warn, o.Key, "%s (%s) is left out: %s", o.written, o.source, because)
	if o.Key == "per_process_memory_fraction" {
		f.Code = CodeFractionOff
		f.Message += fmt.Sprintf(". Nothing limits the memory of a rank then: call torch.cuda.set_per_process_memory_fraction(%s) in the script", o.Value)
	}
	return &f
}

// merge is what comes together of several sources.
type merge struct {
	version  version
	pairs    Pairs
	sources  []string // of each pair
	findings []Finding
}

// set adds a pair, in place of one with that key.
func (m *merge) set(pair Pair, source string) {
	if i := slices.IndexFunc(m.pairs, func(p Pair) bool { return p.Key == pair.Key }); i >= 0 {
		m.pairs[i], m.sources[i] = pair, source
		return
	}
	m.pairs = append(m.pairs, pair)
	m.sources = append(m.sources, source)
}

// under adds what the settings win over.
func (m *merge) under(below []Given) {
	read, _ := inForce(below, m.version)
	if read == nil {
		return
	}
	pairs, err := Parse(read.Text)
	if err != nil {
		m.findings = append(m.findings, finding(CodeMalformed, Warn, "", "%s (%s) is %q, which is no list of settings, and is put aside for the job's own: %s",
			read.Name, read.Source, read.Text, err))
		return
	}
	for _, pair := range pairs {
		m.set(pair, read.Source)
	}
}

// add adds the settings, and says which of others they replace.
func (m *merge) add(kept []own) {
	for _, o := range kept {
		i := slices.IndexFunc(m.pairs, func(p Pair) bool { return p.Key == o.Key })
		if i >= 0 && m.pairs[i].Value != o.Value {
			m.findings = append(m.findings, finding(CodeOverridden, Info, o.Key, "%s (%s) is in force, and not %s:%s of %s",
				o.written, o.source, o.Key, m.pairs[i].Value, m.sources[i]))
		}
		m.set(o.Pair, o.source)
	}
}

// over adds what wins over the settings. It is false where that is no list of settings:
// nothing can be added to it then.
func (m *merge) over(above []Given, kept []own) bool {
	read, _ := inForce(above, m.version)
	if read == nil {
		return true
	}
	pairs, err := Parse(read.Text)
	if err != nil {
		m.findings = append(m.findings, finding(CodeMalformed, Fail, "", "%s (%s) is %q, which is no list of settings, and the allocator block cannot be added to it: %s",
			read.Name, read.Source, read.Text, err))
		return false
	}
	for _, o := range kept {
		if value, set := pairs.Get(o.Key); set && value != o.Value {
			m.findings = append(m.findings, finding(CodeOverridden, Warn, o.Key, "%s (%s) is not in force: %s (%s) has %s:%s, and what env says wins",
				o.written, o.source, read.Name, read.Source, o.Key, value))
		}
	}
	for _, pair := range pairs {
		m.set(pair, read.Source)
	}
	return true
}

// vars are the variables for the version.
func (m *merge) vars() []Var {
	var sources []string
	for _, source := range m.sources {
		if !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	var vars []Var
	for _, name := range m.version.written() {
		vars = append(vars, Var{Name: name, Value: m.pairs.Format(), Source: strings.Join(sources, ", ")})
	}
	return vars
}
