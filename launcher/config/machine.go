package config

import (
	"maps"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// varPrefix begins the names of variables by which a machine's environment sets those of
// job files: MUSTER_VAR_hf_token is what -var hf_token=... would say.
const varPrefix = "MUSTER_VAR_"

// WithEnviron is the source with what the launching machine's environment, as os.Environ
// has it, adds: values of variables that the job file declares and Vars has not, from
// MUSTER_VAR_NAME, and what forward names. It is the one way from there into a job. What
// is wrong with the job file is left for Evaluate to tell.
func (s Source) WithEnviron(environ []string) Source {
	d := s.declarations()
	set := map[string]string{}
	vars := map[string]string{}
	for _, assignment := range environ {
		name, value, _ := strings.Cut(assignment, "=")
		set[name] = value
		variable, isVar := strings.CutPrefix(name, varPrefix)
		if _, declared := d.scope.vars[variable]; isVar && declared {
			vars[variable] = value
		}
	}
	maps.Copy(vars, s.Vars)
	if len(vars) > 0 {
		s.Vars = vars
	}
	// With them, as a pattern may have a variable in it.
	s.Forwarded = forwarded(s.declarations().patterns, set)
	return s
}

// WithoutSecrets is the source for a file that others may read: without the values of
// sensitive variables and without what is forwarded. WithEnviron puts them back where the
// environment has them.
func (s Source) WithoutSecrets() Source {
	d := s.declarations()
	vars := maps.Clone(s.Vars)
	maps.DeleteFunc(vars, func(name, _ string) bool { return d.scope.secrets[name] })
	s.Vars, s.Forwarded = vars, nil
	return s
}

// declared is what the top of a job file says.
type declared struct {
	*decoder
	patterns []string // of forward
	jobs     []*hclsyntax.Block
}

// declarations decodes variables and forward, and nothing else.
func (s Source) declarations() declared {
	s.Forwarded = nil
	d := declared{decoder: newDecoder(s)}
	if s.checkText().HasErrors() {
		return d
	}
	body := d.parse()
	if body == nil {
		return d
	}
	var variables []*hclsyntax.Block
	for _, block := range body.Blocks {
		if block.Type == "variable" {
			variables = append(variables, block)
		}
	}
	d.allVariables(variables)
	for _, block := range body.Blocks {
		if block.Type != "job" {
			continue
		}
		d.jobs = append(d.jobs, block)
		if d.patterns == nil {
			d.patterns, _ = d.forward(block.Body.Attributes["forward"])
		}
	}
	return d
}
