package nccl

import (
	"fmt"
	"slices"
)

// Settings are what an nccl block sets. A nil one sets nothing.
type Settings struct {
	Values []Setting // in the order of Attributes, none twice
}

// Setting is an attribute that is set.
type Setting struct {
	Attr   string
	Value  string // as the variable has it: bytes, 0 or 1, seconds
	Source string // FILE:LINE
}

// Get is what an attribute is set to.
func (s *Settings) Get(attr string) (Setting, bool) {
	if s == nil {
		return Setting{}, false
	}
	i := slices.IndexFunc(s.Values, func(v Setting) bool { return v.Attr == attr })
	if i < 0 {
		return Setting{}, false
	}
	return s.Values[i], true
}

// Sets is the setting that sets a variable under any of its names.
func (s *Settings) Sets(variable string) (Setting, bool) {
	if s == nil || variable == "" {
		return Setting{}, false
	}
	for _, setting := range s.Values {
		v := setting.attribute().variable()
		if variable == v.Name || variable == v.Former || variable == v.Instead {
			return setting, true
		}
	}
	return Setting{}, false
}

// Vars are the variables that the block sets, in the names that the releases read, and
// what the releases found make of them beyond what holds for all.
func (s *Settings) Vars(version Version) ([]Var, []Finding) {
	if s == nil {
		return nil, nil
	}
	var vars []Var
	var findings []Finding
	for _, setting := range s.Values {
		v := setting.named(version)
		vars = append(vars, v)
		for _, f := range CheckVersion(v.Name, v.Value, version) {
			f.Source = setting.Source
			findings = append(findings, f)
		}
	}
	return vars, findings
}

// named is what a setting becomes: under its variable's older or newer name where the
// release found wants that.
func (s Setting) named(version Version) Var {
	v := s.attribute().variable()
	out := Var{Name: v.Name, Value: s.Value, Source: s.Source}
	who, release := v.reader(version)
	switch {
	case release.before(v.Since) && v.Former != "":
		out.Name, out.Note = v.Former, fmt.Sprintf("the name of %s before %s %s", v.Name, who, v.Since)
	case release.since(v.Deprecated) && v.Instead != "":
		out.Name, out.Note = v.Instead, fmt.Sprintf("the name of %s since %s %s", v.Name, who, v.Deprecated)
	}
	return out
}

func (s Setting) attribute() Attribute {
	i := slices.IndexFunc(Attributes, func(a Attribute) bool { return a.Name == s.Attr })
	if i < 0 {
		panic("nccl: settings have an attribute that the block has not: " + s.Attr)
	}
	return Attributes[i]
}

// variable is what the attribute sets. All are in the tables: a test sees to it.
func (a Attribute) variable() Variable {
	v, _ := Lookup(a.Variable)
	return v
}

// Words are those that the attribute takes, as NCCL's documentation writes them.
func (a Attribute) Words() []string { return a.variable().Words }
