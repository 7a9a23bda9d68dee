package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// Libraries says what NCCL and torch on the hosts make of their settings: of the blocks, of env, and of what the hosts
// themselves set. What is true of several hosts is said once.
func Libraries(p *plan.Plan, m plan.Meeting) []plan.Problem {
	var all []plan.Problem
	at := map[plan.Problem]int{}
	var hosts [][]string // of each problem
	for i, h := range p.Hosts {
		for _, found := range librariesOn(p, i, m) {
			if _, known := at[found]; !known {
				at[found] = len(all)
				all, hosts = append(all, found), append(hosts, nil)
			}
			hosts[at[found]] = append(hosts[at[found]], h.Name)
		}
	}
	for i, names := range hosts {
		switch {
		case len(names) == len(p.Hosts) && len(names) > 1:
		case len(names) > 1:
			all[i].Message = fmt.Sprintf("%s: %s", environ.SomeNames(names), all[i].Message)
		default:
			all[i].Host, all[i].Message = names[0], names[0]+": "+all[i].Message
		}
	}
	return wanted(p, all)
}

// byVersion are findings that depend on the version of torch.
var byVersion = []string{allocator.CodeNoVersion, allocator.CodeVersion, allocator.CodeFractionOff}

func librariesOn(p *plan.Plan, host int, m plan.Meeting) []plan.Problem {
	s, err := environ.SettingsOn(p, host, m)
	if err != nil {
		return nil // the environments themselves report that
	}
	var problems []plan.Problem
	probed := p.Facts[host].Software != nil || host < len(m.Software)
	for _, f := range s.Allocator {
		if probed || !slices.Contains(byVersion, f.Code) { // else setup will show which torch there is
			problems = append(problems, problem(f.Code, "", "%s", f.Message))
		}
	}
	if p.Backend != "nccl" {
		return problems
	}
	set := &ncclSettings{Host: s.Host}
	set.add("", s.OfNCCL)
	for _, v := range slices.Concat(s.NCCL, s.Given) {
		if v.Sensitive { // no message may quote its value
			set.asked = append(set.asked, v.Name)
			continue
		}
		set.take(v.Source, v.Name, v.Value, nccl.CheckVersion(v.Name, v.Value, s.Host.Version))
	}
	set.findOnHost("the host's environment", environ.HostEnviron(p, host, &m))
	for _, file := range p.Facts[host].NCCLFiles {
		set.findOnHost(file.Path, file.Values)
	}
	set.add("", nccl.Advise(set.vars, s.Host))
	return append(problems, set.problems...)
}

// ncclSettings are NCCL's settings on a host, and what there is to say about them.
type ncclSettings struct {
	nccl.Host
	asked    []string // names that the job file sets
	vars     []nccl.Var
	problems []plan.Problem
}

// take takes a setting of the job file.
func (s *ncclSettings) take(source, name, value string, findings []nccl.Finding) {
	s.asked = append(s.asked, name)
	s.vars = append(s.vars, nccl.Var{Name: name, Value: value, Source: source})
	s.add(source, findings)
}

// findOnHost takes the variables that the host itself sets and nobody has asked for.
func (s *ncclSettings) findOnHost(where string, values map[string]string) {
	asked := s.asked
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !nccl.Concerns(name) || slices.Contains(asked, name) {
			continue
		}
		value := values[name]
		s.problems = append(s.problems, problem("nccl_found", "", "%s=%s is set by %s, not by the job file", name, value, where))
		if value != facts.Hidden {
			s.add(where, nccl.Check(name, value, s.Version))
			s.vars = append(s.vars, nccl.Var{Name: name, Value: value, Source: where})
		}
	}
}

// add reports findings, with where a value was set if they do not say that themselves.
func (s *ncclSettings) add(source string, findings []nccl.Finding) {
	for _, f := range findings {
		message := f.Message
		if where := cmp.Or(f.Source, source); where != "" {
			message += " (" + where + ")"
		}
		if f.Fix != "" {
			message += "; " + f.Fix
		}
		s.problems = append(s.problems, problem(f.Code, "", "%s", message))
	}
}

// partsNotes say how NCCL works between MIG devices, where it does.
func partsNotes(p *plan.Plan) []plan.Problem {
	if p.Backend != "nccl" {
		return nil
	}
	var notes []plan.Problem
	for i, h := range p.Hosts {
		if verdict, why, _ := environ.OnDevices(p, i, plan.Meeting{}); verdict == nccl.Works && why != "" {
			notes = append(notes, problem(nccl.CodeMIG, h.Name, "%s: %s", h.Name, why))
		}
	}
	return notes
}

// bufferNote says what a chosen size of NCCL's buffers costs.
func bufferNote(p *plan.Plan) []plan.Problem {
	if _, is := p.Config.NCCL.Get("buffer_size"); !is || p.Backend != "nccl" || p.WorldSize < 2 {
		return nil
	}
	var communicators []string
	if p.Memory != nil {
		communicators = p.Memory.Communicators
	} else {
		communicators = p.MemoryLayout().Communicators()
	}
	size, channels := p.BufferSettings()
	return []plan.Problem{problem("nccl_buffers", "", "%s", nccl.BufferNote(size, channels, communicators))}
}
