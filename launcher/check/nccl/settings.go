package nccl

import (
	"fmt"
	"slices"
)

// Form is how an attribute of the nccl block is written.
type Form string

// Forms, as the table has them.
const (
	AsSwitch       Form = "switch"       // true or false
	AsSize         Form = "size"         // "8MiB"
	AsNumber       Form = "number"       // 3
	AsMode         Form = "mode"         // a number, or true or false for 1 and 0
	AsWord         Form = "word"         // "NVL"
	AsWordList     Form = "words"        // ["INIT", "NET"], or as NCCL has it: "INIT,NET"
	AsAlgorithms   Form = "algorithms"   // ["Ring", "Tree"], or as NCCL has it: "ring;allreduce:tree"
	AsNames        Form = "names"        // ["eth0", "eth1"] for exactly these, or as NCCL has it: "^docker"
	AsPath         Form = "path"         // "/tmp/nccl.%h.%p"
	AsSeconds      Form = "seconds"      // "10m"
	AsMilliseconds Form = "milliseconds" // "15s"
)

// Attribute is an attribute of the nccl block.
type Attribute struct {
	Name     string
	Variable string // what it sets; see Settings.Vars for old releases
	Form     Form
	Low      int64 // of sizes, numbers and times, in the variable's unit
	High     int64
	Example  string // of a list
}

// Attributes are all of them, NCCL's first, then torch's.
var Attributes = readAttributes()

func readAttributes() []Attribute {
	var all []Attribute
	for row := range rows(attributesCSV) {
		all = append(all, Attribute{Name: row["name"], Variable: row["variable"], Form: Form(row["form"]),
			Low: number64(row["low"]), High: number64(row["high"]), Example: row["example"]})
	}
	return all
}

// Words are those that the attribute takes, as NCCL's documentation writes them.
func (a Attribute) Words() []string { return a.variable().Words }

// variable is what the attribute sets. All are in the tables: a test sees to it.
func (a Attribute) variable() Variable {
	v, _ := Lookup(a.Variable)
	return v
}

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
	return s.find(func(v Setting) bool { return v.Attr == attr })
}

// Sets is the setting that sets a variable under any of its names.
func (s *Settings) Sets(variable string) (Setting, bool) {
	return s.find(func(setting Setting) bool {
		v := setting.variable()
		return variable != "" && (variable == v.Name || variable == v.Former || variable == v.Instead)
	})
}

func (s *Settings) find(is func(Setting) bool) (Setting, bool) {
	if s == nil {
		return Setting{}, false
	}
	i := slices.IndexFunc(s.Values, is)
	if i < 0 {
		return Setting{}, false
	}
	return s.Values[i], true
}

// Vars are the variables that the block sets, in the names that the releases read, and what the releases found make of
// them beyond what holds for all.
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

// named is what a setting becomes: under its variable's older or newer name where the release found wants that.
func (s Setting) named(version Version) Var {
	v := s.variable()
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

func (s Setting) variable() Variable {
	i := slices.IndexFunc(Attributes, func(a Attribute) bool { return a.Name == s.Attr })
	if i < 0 {
		panic("nccl: settings have an attribute that the block has not: " + s.Attr)
	}
	return Attributes[i].variable()
}
