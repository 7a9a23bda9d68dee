package environ

import (
	"slices"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
)

// HostEnviron is what is known of a host's own environment: after setup, once that has run.
func HostEnviron(p *plan.Plan, host int, m *plan.Meeting) map[string]string {
	if host < len(m.Environ) && m.Environ[host] != nil {
		return m.Environ[host]
	}
	return p.Facts[host].Environ
}

func (b *builder) environ() map[string]string { return HostEnviron(b.Plan, b.host, b.meeting) }

// softwareOf is what a host was found to run with, last.
func softwareOf(p *plan.Plan, host int, m *plan.Meeting) facts.Software {
	if host < len(m.Software) && m.Software[host] != (facts.Software{}) {
		return m.Software[host]
	}
	if s := p.Facts[host].Software; s != nil {
		return *s
	}
	return facts.Software{}
}

// Settings are what a job's blocks and env set for NCCL and torch's allocator on a host, and what these make of it.
type Settings struct {
	Host      nccl.Host
	Given     []plan.Var // by env
	NCCL      []plan.Var // by the nccl block
	OfNCCL    []nccl.Finding
	Allocator []allocator.Finding
}

// SettingsOn are those of a host's first rank.
func SettingsOn(p *plan.Plan, host int, m plan.Meeting) (Settings, error) {
	b := on(p, host, &m)
	given, err := b.given(p.Ranks[p.Hosts[host].FirstRank])
	if err != nil {
		return Settings{}, err
	}
	s := Settings{Host: b.nccl, Given: given}
	_, s.Allocator = b.allocatorVars(given)
	s.NCCL, s.OfNCCL = b.ncclVars(given)
	return s, nil
}

// ncclSettings are the nccl block with those of the restart rules in force over it.
func (b *builder) ncclSettings() *nccl.Settings {
	settings := b.Config.NCCL
	for _, rule := range b.meeting.InForce.Rules {
		over := b.Config.Restart.On[rule].NCCL
		if over == nil {
			continue
		}
		merged := &nccl.Settings{Values: slices.Clone(over.Values)}
		if settings != nil {
			for _, s := range settings.Values {
				if _, is := over.Get(s.Attr); !is {
					merged.Values = append(merged.Values, s)
				}
			}
		}
		settings = merged
	}
	return settings
}

// ncclVars are what the nccl block sets for a rank, less what env sets under any name.
func (b *builder) ncclVars(given []plan.Var) ([]plan.Var, []nccl.Finding) {
	settings := b.ncclSettings()
	set, findings := settings.Vars(b.nccl.Version)
	var vars []plan.Var
	for _, v := range set {
		if !slices.ContainsFunc(given, func(g plan.Var) bool { return sameVariable(settings, g.Name, v) }) {
			vars = append(vars, fromNCCL(v))
		}
	}
	return vars, findings
}

// sameVariable reports whether env sets what the block's variable does.
func sameVariable(s *nccl.Settings, name string, v nccl.Var) bool {
	if name == v.Name {
		return true
	}
	setting, is := s.Sets(name)
	return is && setting.Source == v.Source
}

func fromNCCL(v nccl.Var) plan.Var {
	source := v.Source
	if v.Note != "" {
		source += "; " + v.Note
	}
	return plan.Var{Name: v.Name, Value: v.Value, Source: source}
}

// derived are settings that a host needs and nobody has made.
func (b *builder) derived() []plan.Var {
	if b.Backend != "nccl" {
		return nil
	}
	var vars []plan.Var
	for _, v := range nccl.Derived(b.nccl) {
		made := fromNCCL(v)
		made.Default = true
		vars = append(vars, made)
	}
	return vars
}

// allocatorVars are what the allocator block sets for a rank, with what others have set merged in: it stands above
// env, whose values it holds. What restarts have changed wins over all.
func (b *builder) allocatorVars(given []plan.Var) ([]plan.Var, []allocator.Finding) {
	var below, above []allocator.Given
	secret := false
	environ := b.environ()
	for _, name := range allocator.Names {
		if value, is := environ[name]; is {
			source := "the environment of " + b.Hosts[b.host].Name
			below = append(below, allocator.Given{Name: name, Text: value, Source: source})
		}
	}
	for _, v := range given {
		if slices.Contains(allocator.Names, v.Name) {
			above = append(above, allocator.Given{Name: v.Name, Text: v.Value, Source: v.Source})
			secret = secret || v.Sensitive
		}
	}
	torch := softwareOf(b.Plan, b.host, b.meeting).Torch
	var set []allocator.Var
	var findings []allocator.Finding
	if b.Config.Allocator != nil {
		set, findings = b.Config.Allocator.Vars(torch, below, above)
	}
	for _, over := range b.remedies() {
		under := asGiven(set)
		if len(set) == 0 {
			under = slices.Concat(below, above)
		}
		more, found := over.Vars(torch, under, nil)
		if len(more) > 0 {
			set = more
		}
		findings = append(findings, found...)
	}
	var vars []plan.Var
	for _, v := range set {
		vars = append(vars, plan.Var{Name: v.Name, Value: v.Value, Source: v.Source, Sensitive: secret})
	}
	if secret {
		findings = nil // they quote values
	}
	return vars, findings
}

func asGiven(vars []allocator.Var) []allocator.Given {
	var given []allocator.Given
	for _, v := range vars {
		given = append(given, allocator.Given{Name: v.Name, Text: v.Value, Source: v.Source})
	}
	return given
}

// remedies are the allocator settings of the restart rules in force, and muster's own.
func (b *builder) remedies() []*allocator.Settings {
	var all []*allocator.Settings
	for _, rule := range b.meeting.InForce.Rules {
		if s := b.Config.Restart.On[rule].Allocator; s != nil {
			all = append(all, s)
		}
	}
	if s := b.meeting.InForce.Remedy.Allocator(); s != nil {
		all = append(all, s)
	}
	return all
}
