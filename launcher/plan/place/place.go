// Package place chooses the devices of a host's ranks, their order, and what each rank sees of them: what the host
// allows, less what is busy, ordered by how fast the links are, and checked against what the job file asks for. It is
// pure, as package plan is.
package place

import (
	"cmp"
	"fmt"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Problem is a reason why there is no plan, or something to know about one.
type Problem struct {
	Code    string // stable, such as "same_machine"
	Message string
	Host    string // "" where it is about several
}

func (p Problem) Error() string { return p.Message }

// Share is what a host brings into a plan.
type Share struct {
	Ranks int
	// Devices are those of its ranks, in their order: as many as ranks, fewer where ranks share them, more where a
	// rank should spread over several. Empty: ranks use none.
	Devices []device.Device
	// Visibility is "host" where every rank sees all devices and LOCAL_RANK is the number of its own among them,
	// "rank" where it sees its own only. "" without devices.
	Visibility string
	VisibleWhy string // why it is so
	Names      string // how devices are named to ranks: "uuid" or "index"
	Claimed    bool   // no other run may have the devices: they were chosen as idle
	Variable   string `json:"-"` // shows ranks their devices
	Hidden     bool   `json:"-"` // the job wants no GPU: there may be some, nobody has looked
	Bare       bool   `json:"-"` // the host has no GPU, and nothing said how many ranks it gets
}

// Result is a host's share and what there is to say about it. With refusals there is none.
type Result struct {
	Share
	Refusals, Warnings, Notes []Problem
}

// OnHost chooses the devices of a job's host with a number in the job file. first is its first rank.
func OnHost(job *config.Job, number int, f facts.Host, first int) Result {
	s := newSite(job, number, f, first)
	share := s.choose()
	share.Variable = s.variable()
	if len(share.Devices) > 0 && !s.refused() {
		show(s, &share)
	}
	s.Share = share
	return s.Result
}

// site is a host as far as its devices are concerned, and the result so far.
type site struct {
	job     *config.Job
	host    *config.Host
	facts   *facts.Host
	devices *facts.Devices // nil where no GPU is known
	first   int            // rank of the host's first
	Result
}

func newSite(job *config.Job, number int, f facts.Host, first int) *site {
	s := &site{job: job, host: &job.Hosts[number], facts: &f, first: first}
	if f.Devices != nil && f.Devices.Inventory != nil && len(f.Devices.Inventory.GPUs) > 0 {
		s.devices = f.Devices
	}
	return s
}

func (s *site) problem(code, format string, args []any) Problem {
	return Problem{Code: code, Host: s.host.Name, Message: fmt.Sprintf(format, args...)}
}

func (s *site) refuse(code, format string, args ...any) {
	s.Refusals = append(s.Refusals, s.problem(code, format, args))
}

// refuseAsked refuses what the job file asks for of devices, and says where it does.
func (s *site) refuseAsked(code, format string, args ...any) {
	s.refuse(code, "%s%s", inFile(s.host.AskedAt()), fmt.Sprintf(format, args...))
}

// inFile begins a message about a place in the job file; "" where there is none.
func inFile(place string) string {
	if place == "" {
		return ""
	}
	return place + ": "
}

func (s *site) warn(code, format string, args ...any) {
	s.Warnings = append(s.Warnings, s.problem(code, format, args))
}

func (s *site) note(code, format string, args ...any) {
	s.Notes = append(s.Notes, s.problem(code, format, args))
}

func (s *site) refused() bool { return len(s.Refusals) > 0 }

// CUDAVisible is CUDA's variable; its rules are in the CUDA programming guide.
const CUDAVisible = "CUDA_VISIBLE_DEVICES"

// variable is the name of the variable that shows processes their devices.
func (s *site) variable() string {
	if s.devices == nil {
		return CUDAVisible
	}
	return cmp.Or(s.devices.Visibility.Variable, CUDAVisible)
}

func (s *site) gpus() []gpu.GPU { return s.devices.Inventory.GPUs }

// card is the GPU that a device is, or is a part of.
func (s *site) card(d device.Device) *gpu.GPU { return &s.devices.Inventory.GPUs[d.Card] }

// ranksOn is how many ranks so many devices get.
func (s *site) ranksOn(devices int) int { return cmp.Or(s.host.PerHost, devices*s.job.RanksPerGPU()) }

// choose decides how many ranks the host gets, and on which devices.
func (s *site) choose() Share {
	kind := s.host.Devices.Kind
	if kind == config.DevicesNone {
		return Share{Ranks: max(1, s.host.PerHost), Hidden: true}
	}
	if s.devices == nil {
		return withoutDevices(s)
	}
	allowed, ordered := visible(s)
	if kind == config.DevicesProfile {
		allowed = ofProfile(s, allowed, s.host.Devices.List[0])
	}
	if s.refused() {
		return Share{}
	}
	var share Share
	switch {
	case kind == config.DevicesList:
		share = named(s, allowed)
	case kind == config.DevicesProfiles:
		share = profiled(s, allowed)
	case s.wanted() > 0:
		share = some(s, allowed, ordered)
	default:
		share = all(s, allowed, ordered)
	}
	if !s.refused() {
		checkSharing(s, share)
		checkMPS(s, share)
		checkSpread(s, share)
		checkUnlike(s, share)
		noteUnknown(s, share)
	}
	return share
}

// wanted is how many devices are asked for by number; 0: all.
func (s *site) wanted() int {
	if s.host.Devices.Kind == config.DevicesCount {
		return s.host.Devices.Count
	}
	each := s.job.RanksPerGPU()
	return (s.host.PerHost + each - 1) / each
}

// withoutDevices is a host without GPUs, or one whose GPUs do not answer.
func withoutDevices(s *site) Share {
	why := "nothing was found"
	d := s.facts.Devices
	if d != nil && d.None != "" {
		why = d.None
	}
	asked := s.job.MPS != nil || s.host.PerGPU || s.host.Devices.Kind != config.DevicesAll
	switch {
	case d != nil && d.Expected != "":
		s.refuse("devices_unknown",
			"%s should have GPUs (%s), but nothing can be known of them: %s; if the job uses none, write ranks { devices = \"none\" }",
			s.host.Name, d.Expected, why)
	case asked:
		s.refuseAsked("no_gpu", "%s has no GPU: %s", s.host.Name, why)
	case s.job.Backend == "nccl":
		s.refuse("no_gpu", "%s has no GPU (%s), and backend = \"nccl\" needs one for each rank", s.host.Name, why)
	}
	return Share{Ranks: max(1, s.host.PerHost), Bare: s.host.PerHost == 0}
}

// Counted is how many GPUs and MIG devices there are, as text.
func Counted(devices []device.Device) string {
	parts := len(device.Parts(devices))
	switch whole := len(devices) - parts; {
	case parts == 0:
		return plural.Of(whole, "GPU")
	case whole == 0:
		return plural.Of(parts, "MIG device")
	default:
		return plural.Of(whole, "GPU") + " and " + plural.Of(parts, "MIG device")
	}
}
