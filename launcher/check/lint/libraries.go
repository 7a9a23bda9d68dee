package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// libraries says what NCCL and torch on the hosts make of their settings: of the blocks, of env, and of what the hosts
// themselves set. What is the same of several hosts is one finding.
func libraries(in *rule.Input) (all rule.Findings) {
	hosts := map[said][]string{}
	var order []said
	for i, h := range in.Plan.Hosts {
		for _, f := range librariesOf(in.Plan, i, in.Meeting) {
			if hosts[f] == nil {
				order = append(order, f)
			}
			hosts[f] = append(hosts[f], h.Name)
		}
	}
	for _, f := range order {
		switch names := hosts[f]; {
		case len(names) == 1:
			all = append(all, rule.Find(rule.Finding{Code: f.code, Host: names[0]}, "", "%s", f.message)...)
		case len(names) == len(in.Plan.Hosts):
			all = append(all, rule.Find(rule.Finding{Code: f.code}, "", "%s", f.message)...)
		default:
			all = append(all, rule.Find(rule.Finding{Code: f.code}, "", "%s: %s", environ.SomeNames(names), f.message)...)
		}
	}
	return all.As(rule.Warn)
}

// ofVersion are findings that depend on the version of torch.
var ofVersion = []string{allocator.CodeNoVersion, allocator.CodeVersion, allocator.CodeFractionOff}

// said is a finding, without where it is true.
type said struct{ code, message string }

func librariesOf(p *plan.Plan, host int, m plan.Meeting) (all []said) {
	s, err := environ.SettingsOn(p, host, m)
	if err != nil {
		return nil // the environments themselves are going to say so
	}
	probed := p.Facts[host].Software != nil || host < len(m.Software)
	for _, f := range s.Allocator {
		if probed || !slices.Contains(ofVersion, f.Code) { // which torch there is turns out once setup has run
			all = append(all, said{f.Code, f.Message})
		}
	}
	if p.Backend == "nccl" {
		all = append(all, ncclSettings(p, host, m, s)...)
	}
	return all
}

func ncclSettings(p *plan.Plan, host int, m plan.Meeting, s environ.Settings) []said {
	findings := s.OfNCCL
	var effective, secret []nccl.Var // of secrets no message may quote the values
	for _, v := range slices.Concat(s.NCCL, s.Given) {
		if v.Sensitive {
			secret = append(secret, nccl.Var{Name: v.Name})
			continue
		}
		findings = append(findings, from(v.Source, nccl.CheckVersion(v.Name, v.Value, s.Host.Version))...)
		effective = append(effective, nccl.Var{Name: v.Name, Value: v.Value, Source: v.Source})
	}
	all := messages(findings)
	asked := slices.Concat(effective, secret)
	take := func(where string, values map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !nccl.Concerns(name) || slices.ContainsFunc(asked, func(v nccl.Var) bool { return v.Name == name }) {
				continue
			}
			all = append(all, said{"nccl_found", fmt.Sprintf("%s=%s is set by %s, not by the job file", name, values[name], where)})
			if values[name] != facts.Hidden {
				all = append(all, messages(from(where, nccl.Check(name, values[name], s.Host.Version)))...)
				effective = append(effective, nccl.Var{Name: name, Value: values[name], Source: where})
			}
		}
	}
	take("the host's environment", environ.HostEnviron(p, host, &m))
	for _, file := range p.Facts[host].NCCLFiles {
		take(file.Path, file.Values)
	}
	return append(all, messages(nccl.Advise(effective, s.Host))...)
}

// from fills in where values were set that findings are about.
func from(source string, findings []nccl.Finding) []nccl.Finding {
	for i := range findings {
		if findings[i].Source == "" {
			findings[i].Source = source
		}
	}
	return findings
}

func messages(findings []nccl.Finding) (all []said) {
	for _, f := range findings {
		message := f.Message
		if f.Source != "" {
			message += " (" + f.Source + ")"
		}
		if f.Fix != "" {
			message += "; " + f.Fix
		}
		all = append(all, said{f.Code, message})
	}
	return all
}
