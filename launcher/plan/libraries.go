package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// environOf is what a host's own environment tells of devices and libraries: after setup,
// once that has run.
func (p *Plan) environOf(host int, m Meeting) map[string]string {
	if host < len(m.Environ) && m.Environ[host] != nil {
		return m.Environ[host]
	}
	return p.Facts[host].Environ
}

// softwareOf is what a host was found to run with, last.
func (p *Plan) softwareOf(host int, m Meeting) facts.Software {
	if host < len(m.Software) && m.Software[host] != (facts.Software{}) {
		return m.Software[host]
	}
	if s := p.Facts[host].Software; s != nil {
		return *s
	}
	return facts.Software{}
}

// ncclHost is a host as far as NCCL's settings concern it.
func (p *Plan) NCCLHost(host int, m Meeting) nccl.Host {
	h, f, s := p.Hosts[host], p.Facts[host], p.softwareOf(host, m)
	n := nccl.Host{
		Name:  "the host", // so that what is the same on many hosts reads the same
		Hosts: len(p.Hosts), GPUs: len(h.Devices), Sharing: len(h.Devices) > 0 && (h.Ranks > len(h.Devices) || device.Repeats(h.Devices)),
		Version: nccl.ParseVersion(s.NCCL, s.Torch), Container: f.Container != "", Adapters: []string{},
	}
	for _, a := range f.HCAs {
		if a.State == "active" {
			n.Adapters = append(n.Adapters, a.Name)
		}
	}
	for _, nic := range f.NICs {
		n.Interfaces = append(n.Interfaces, nccl.Interface{Name: nic.Name, Up: nic.Up, Loopback: nic.Loopback, Virtual: nic.Virtual})
	}
	n.NVLink, n.AllNV = p.nvlinks(host)
	n.Parts, n.OneGPU = len(device.Parts(h.Devices)), device.OnOneGPU(h.Devices)
	if !p.Independent {
		n.Ranks = p.WorldSize
	}
	if d := f.Devices; d != nil && d.Inventory != nil && len(h.Devices) > 0 {
		n.Fabric = slices.ContainsFunc(d.Inventory.GPUs, func(g gpu.GPU) bool { return g.Fabric != nil })
		if d.Inventory.CUDA != nil {
			n.CUDA = *d.Inventory.CUDA
		}
	}
	return n
}

// nvlinks says whether some, and whether all, pairs of a host's devices have NVLink.
func (p *Plan) nvlinks(host int) (some, all bool) {
	devices := p.Hosts[host].Devices
	all = len(devices) > 1
	for i, a := range devices {
		for _, b := range devices[:i] {
			var link gpu.Link
			if d := p.Facts[host].Devices; d != nil {
				link = device.LinkBetween(d.Links, a, b)
			}
			some, all = some || link.NVLinks() > 0, all && link.NVLinks() > 0
		}
	}
	return some, all
}

// ncclSettings are the nccl block with those of the restart rules in force over it.
func (p *Plan) ncclSettings(m Meeting) *nccl.Settings {
	settings := p.Config.NCCL
	for _, rule := range m.InForce.Rules {
		over := p.Config.Restart.On[rule].NCCL
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
func (p *Plan) ncclVars(host int, m Meeting, given []Var) ([]Var, []nccl.Finding) {
	version, settings := p.NCCLHost(host, m).Version, p.ncclSettings(m)
	set, findings := settings.Vars(version)
	var vars []Var
	for _, v := range set {
		if slices.ContainsFunc(given, func(g Var) bool { return sameVariable(settings, g.Name, v) }) {
			continue
		}
		vars = append(vars, Var{Name: v.Name, Value: v.Value, Source: join(v.Source, v.Note)})
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

func join(source, note string) string {
	if note == "" {
		return source
	}
	return source + "; " + note
}

// derived are settings that a host needs and nobody has made.
func (p *Plan) derived(host int, m Meeting) []Var {
	if p.Backend != "nccl" {
		return nil
	}
	var vars []Var
	for _, v := range nccl.Derived(p.NCCLHost(host, m)) {
		vars = append(vars, Var{Name: v.Name, Value: v.Value, Source: join(v.Source, v.Note), Default: true})
	}
	return vars
}

// allocatorVars are what the allocator block sets for a rank, with what others have set
// merged in: it stands above env, whose values it holds. What restarts have changed wins
// over all.
func (p *Plan) allocatorVars(host int, m Meeting, given []Var) ([]Var, []allocator.Finding) {
	var below, above []allocator.Given
	secret := false
	environ := p.environOf(host, m)
	for _, name := range allocator.Names {
		if value, is := environ[name]; is {
			below = append(below, allocator.Given{Name: name, Text: value, Source: "the environment of " + p.Hosts[host].Name})
		}
	}
	for _, v := range given {
		if slices.Contains(allocator.Names, v.Name) {
			above = append(above, allocator.Given{Name: v.Name, Text: v.Value, Source: v.Source})
			secret = secret || v.Sensitive
		}
	}
	torch := p.softwareOf(host, m).Torch
	var set []allocator.Var
	var findings []allocator.Finding
	if p.Config.Allocator != nil {
		set, findings = p.Config.Allocator.Vars(torch, below, above)
	}
	for _, over := range p.remedies(m) {
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
	var vars []Var
	for _, v := range set {
		vars = append(vars, Var{Name: v.Name, Value: v.Value, Source: v.Source, Sensitive: secret})
	}
	if secret {
		findings = nil // their words quote values
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
func (p *Plan) remedies(m Meeting) []*allocator.Settings {
	var all []*allocator.Settings
	for _, rule := range m.InForce.Rules {
		if s := p.Config.Restart.On[rule].Allocator; s != nil {
			all = append(all, s)
		}
	}
	if s := m.InForce.Remedy.Allocator(); s != nil {
		all = append(all, s)
	}
	return all
}

// CommandFor is the command of an attempt: the job's, with the task's words and those that
// restarts append.
func (p *Plan) CommandFor(m Meeting) []string {
	command := p.Command
	if len(p.Tasks) > 0 {
		command = slices.Concat(command, p.Tasks[m.Task].Words)
	}
	for _, rule := range m.InForce.Rules {
		command = slices.Concat(command, p.Config.Restart.On[rule].Args)
	}
	return command
}

// maxRestarts is how often a failed attempt may be followed by another.
func (p *Plan) maxRestarts() int {
	if p.Config.Restart == nil {
		return 0
	}
	return p.Config.Restart.Attempts
}

// LibraryProblems says what NCCL and torch on the hosts make of their settings: of the
// blocks, of env, and of what the hosts themselves set. Hosts of which the same is to be
// said are told of once.
func (p *Plan) LibraryProblems(m Meeting) []Problem {
	var all []Problem
	at := map[string]int{}
	hosts := map[string][]string{}
	for i, h := range p.Hosts {
		for _, problem := range p.libraryProblemsOf(i, m) {
			key := problem.Code + "\n" + problem.Message
			if _, known := at[key]; !known {
				at[key] = len(all)
				all = append(all, problem)
			}
			hosts[key] = append(hosts[key], h.Name)
		}
	}
	for i, problem := range all {
		names := hosts[problem.Code+"\n"+problem.Message]
		switch {
		case len(names) == len(p.Hosts) && len(names) > 1:
			all[i].Host = ""
		case len(names) > 1:
			all[i].Message = fmt.Sprintf("%s: %s", someNames(names), problem.Message)
		default:
			all[i].Host, all[i].Message = names[0], names[0]+": "+problem.Message
		}
	}
	return p.wanted(all)
}

// shownNames is how many hosts are named in a sentence.
const shownNames = 4

func someNames(names []string) string {
	if n := len(names); n > shownNames {
		return fmt.Sprintf("%s and %s", strings.Join(names[:shownNames], ", "), plural.Of(n-shownNames, "more host"))
	}
	return strings.Join(names, ", ")
}

// ofVersion are findings that hang on the version of torch.
var ofVersion = []string{allocator.CodeNoVersion, allocator.CodeVersion, allocator.CodeFractionOff}

func (p *Plan) libraryProblemsOf(host int, m Meeting) []Problem {
	rank := p.Ranks[p.Hosts[host].FirstRank]
	given, err := p.given(rank, m)
	if err != nil {
		return nil // the environments themselves are going to say so
	}
	_, allocatorFindings := p.allocatorVars(host, m, given)
	var problems []Problem
	looked := p.Facts[host].Software != nil || host < len(m.Software)
	for _, f := range allocatorFindings {
		if !looked && slices.Contains(ofVersion, f.Code) {
			continue // which torch there is turns out once setup has run
		}
		problems = append(problems, Problem{Code: f.Code, Message: f.Message})
	}
	if p.Backend != "nccl" {
		return problems
	}
	return append(problems, p.ncclProblems(host, m, given)...)
}

func (p *Plan) ncclProblems(host int, m Meeting, given []Var) []Problem {
	n := p.NCCLHost(host, m)
	block, findings := p.ncclVars(host, m, given)
	var effective []nccl.Var
	var secret []nccl.Var // whose values no words may quote
	for _, v := range slices.Concat(block, given) {
		if v.Sensitive {
			secret = append(secret, nccl.Var{Name: v.Name})
			continue
		}
		findings = append(findings, from(v.Source, nccl.CheckVersion(v.Name, v.Value, n.Version))...)
		effective = append(effective, nccl.Var{Name: v.Name, Value: v.Value, Source: v.Source})
	}
	problems := problemsOf(findings)
	found, more := p.foundOnHost(host, m, slices.Concat(effective, secret))
	problems = append(problems, more...)
	return append(problems, problemsOf(nccl.Advise(append(effective, found...), n))...)
}

// foundOnHost are NCCL's variables that the host itself sets and nobody has asked for.
func (p *Plan) foundOnHost(host int, m Meeting, asked []nccl.Var) (found []nccl.Var, problems []Problem) {
	version := p.NCCLHost(host, m).Version
	take := func(where string, values map[string]string) {
		for _, name := range sortedNames(values) {
			if !nccl.Concerns(name) || slices.ContainsFunc(asked, func(v nccl.Var) bool { return v.Name == name }) {
				continue
			}
			problems = append(problems, Problem{Code: "nccl_found", Message: fmt.Sprintf("%s=%s is set by %s, not by the job file", name, values[name], where)})
			if values[name] == facts.Hidden {
				continue
			}
			problems = append(problems, problemsOf(from(where, nccl.Check(name, values[name], version)))...)
			found = append(found, nccl.Var{Name: name, Value: values[name], Source: where})
		}
	}
	take("the host's environment", p.environOf(host, m))
	for _, file := range p.Facts[host].NCCLFiles {
		take(file.Path, file.Values)
	}
	return found, problems
}

func sortedNames(values map[string]string) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func from(source string, findings []nccl.Finding) []nccl.Finding {
	for i := range findings {
		if findings[i].Source == "" {
			findings[i].Source = source
		}
	}
	return findings
}

func problemsOf(findings []nccl.Finding) []Problem {
	var problems []Problem
	for _, f := range findings {
		message := f.Message
		if f.Source != "" {
			message += " (" + f.Source + ")"
		}
		if f.Fix != "" {
			message += "; " + f.Fix
		}
		problems = append(problems, Problem{Code: f.Code, Message: message})
	}
	return problems
}

// bufferNote says what a chosen size of NCCL's buffers costs.
func (p *Plan) bufferNote() []Problem {
	if _, is := p.Config.NCCL.Get("buffer_size"); !is || p.Backend != "nccl" || p.WorldSize < 2 {
		return nil
	}
	size, channels := p.BufferSettings()
	return []Problem{{Code: "nccl_buffers", Message: nccl.BufferNote(size, channels, p.communicators())}}
}

// communicators are those that the job is taken to make, with what is known of its model.
func (p *Plan) communicators() []string {
	if p.Memory != nil {
		return p.Memory.Communicators
	}
	return p.memoryLayout().Communicators()
}

// BufferSettings are the size of NCCL's buffers in bytes and the limit on its channels, as
// the nccl block sets them; 0 where it does not.
func (p *Plan) BufferSettings() (size uint64, channels int) {
	return uint64(p.ncclNumber("buffer_size")), int(cmp.Or(p.ncclNumber("max_ctas"), p.ncclNumber("max_channels")))
}

func (p *Plan) ncclNumber(attr string) int64 {
	setting, _ := p.Config.NCCL.Get(attr)
	n, err := strconv.ParseInt(setting.Value, 10, 64)
	if err != nil {
		return 0 // nothing is set
	}
	return n
}
