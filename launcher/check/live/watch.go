package live

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Seconds since the start.
const (
	// settle is how long a rank that has opened GPU 0 only is believed to be on its way to
	// its own.
	settle = 2
	// After these a rank without a GPU is said, and is worth a warning: importing torch
	// from a cold file server takes that long at times.
	noGPUInfo = 60
	noGPUWarn = 300
)

// Watch follows one attempt: who is seen on which device, against the plan. Each thing is
// said once, and again only if there is more of it.
type Watch struct {
	plan  *plan.Plan
	hosts []*watchedHost
	tasks map[int]int    // by the place that each has
	said  map[string]int // how much of it
	found []rule.Finding // by the sight that is taken in
}

type watchedHost struct {
	name    string
	at      int
	part    plan.Host
	shared  bool
	devices []*watchedDevice
	ranks   []*watchedRank
	beside  map[string]string // words for MIG devices, in the plan or not, by UUID
	alone   map[int]float64   // when processes that should be clients of MPS were first seen as none
}

// watchedDevice is a device of the plan, once.
type watchedDevice struct {
	plan.Device
	ranks  []int // whose it is; none: any rank of the host may spread to it
	before plan.Before
}

// watchedRank is a rank that is to come to its device.
type watchedRank struct {
	plan.Rank
	main   int // pid of the process that is the rank, as far as devices go; 0: not seen
	proven bool
	ended  bool
	began  float64
	away   float64 // when it was first seen on another device only; <0: it was not
}

// New begins to follow an attempt.
func New(p *plan.Plan) *Watch {
	w := &Watch{plan: p, tasks: map[int]int{}, said: map[string]int{}}
	for i, part := range p.Hosts {
		claims, _ := p.Claims(i)
		h := &watchedHost{name: part.Name, at: i, part: part, shared: claims == nil}
		h.beside = device.InstanceNames(p.Facts[i].Devices)
		for _, before := range p.Before(i) {
			ranks := rule.RanksOf(p, i, before.Device)
			h.devices = append(h.devices, &watchedDevice{Device: before.Device, ranks: ranks, before: before})
		}
		for _, r := range p.Ranks[part.FirstRank : part.FirstRank+part.Ranks] {
			h.ranks = append(h.ranks, &watchedRank{Rank: r, proven: r.Device == nil, away: -1})
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

// Proven reports whether every rank was seen on its device.
func (w *Watch) Proven() bool { return len(w.Unproven()) == 0 }

// Unproven are the ranks that were not seen on their devices so far.
func (w *Watch) Unproven() []int {
	var ranks []int
	for _, h := range w.hosts {
		for _, r := range h.ranks {
			if !r.proven {
				ranks = append(ranks, r.Rank.Rank)
			}
		}
	}
	return ranks
}

// Ended tells that a rank's processes have ended: it needs no device any more.
func (w *Watch) Ended(rank int) {
	for _, h := range w.hosts {
		if rank >= h.part.FirstRank && rank < h.part.FirstRank+h.part.Ranks {
			h.ranks[rank-h.part.FirstRank].ended = true
		}
	}
}

// Began tells that a place's worker was started anew at a time: an independent rank, or a
// task with its number.
func (w *Watch) Began(place, task int, at float64) {
	w.tasks[place] = task
	for _, h := range w.hosts {
		if i := place - h.part.FirstRank; i >= 0 && i < h.part.Ranks {
			r := h.ranks[i]
			r.main, r.ended, r.away, r.began = 0, false, -1, at
		}
	}
}

// See takes what a host saw, and returns what is new. The same sight may be given again
// with a later time.
func (w *Watch) See(s Sight) []rule.Finding {
	w.found = nil
	h := w.hosts[s.Host]
	switch {
	case len(h.devices) == 0:
	case s.Error != "":
		if w.grew(h, codes.CannotSee, "error", 1) {
			w.say(rule.Finding{Code: codes.CannotSee, Host: h.name}, rule.Warn, "",
				"%s: its GPUs cannot be looked at (%s): whether ranks are on theirs is not known", h.name, s.Error)
		}
	default:
		w.see(h, s)
	}
	rule.Sort(w.found)
	return w.found
}

func (w *Watch) see(h *watchedHost, s Sight) {
	byRank, others, served := h.sort(s)
	if s.Blind != "" && w.grew(h, codes.CannotSee, "blind", 1) {
		w.say(rule.Finding{Code: codes.CannotSee, Host: h.name}, "",
			"start the container with the machine's process numbers (docker: --pid=host) to have placement watched",
			"%s: which rank is on which GPU cannot be seen there: %s", h.name, s.Blind)
	}
	var extra, wrong, children placements
	for i, r := range h.ranks {
		all := byRank[i]
		if len(all) == 0 {
			r.proven = r.proven || r.Device != nil && served[r.Device.UUID]
			continue
		}
		main, rest := r.split(all)
		own, away := h.judge(r, main)
		r.proven = r.proven || own
		switch {
		case len(away) == 0:
			r.away = -1
		case own:
			extra.add(r, away)
		case h.isOnItsWay(r, away, s.At):
			extra.add(r, away)
		default:
			wrong.add(r, away)
		}
		children.add(r, rest)
	}
	w.sayExtra(h, extra)
	w.sayWrong(h, wrong)
	w.sayShared(h, wrong, byRank)
	w.sayChildren(h, children)
	w.sayWithout(h, s, byRank, served)
	w.sayClients(h, s, byRank)
	if s.Blind != "" {
		w.sayCrowded(h, others)
	} else {
		w.sayForeign(h, others)
	}
}

// sort brings what is held together with ranks and devices. served are the devices that a
// server of MPS holds.
func (h *watchedHost) sort(s Sight) (byRank [][]held, others []held, served map[string]bool) {
	byRank, served = make([][]held, len(h.ranks)), map[string]bool{}
	for _, seen := range s.Holders {
		x := held{Holder: seen, device: h.deviceOf(seen)}
		if x.device == nil {
			x.beside = h.beside[seen.UUID]
		}
		local := seen.Rank - h.part.FirstRank
		switch {
		case isMPS(seen):
			served[seen.UUID] = true
		case seen.Kind == "graphics", isTrace(seen) && !x.isOf(seen.Rank):
		case seen.Rank != gpu.Nobody && local >= 0 && local < len(h.ranks):
			byRank[local] = append(byRank[local], x)
		default:
			others = append(others, x)
		}
	}
	return byRank, others, served
}

// isOf reports whether the device is a rank's own.
func (x held) isOf(rank int) bool { return x.device != nil && slices.Contains(x.device.ranks, rank) }

// deviceOf is the plan's device that somebody holds. Where only the GPU is told and the
// plan has parts of it, the rank's own part is meant: a process cannot leave its part. A part
// that is told and not in the plan is none of the plan's.
func (h *watchedHost) deviceOf(seen gpu.Holder) *watchedDevice {
	var part *watchedDevice
	for _, d := range h.devices {
		if d.UUID == seen.UUID && d.UUID != "" {
			return d
		}
		if strings.HasPrefix(seen.UUID, "MIG-") {
			continue
		}
		if d.IsInstance() && (part == nil || slices.Contains(d.ranks, seen.Rank)) {
			part = d
		}
	}
	return part
}

// split tells the process that is the rank from its children. That is the leader, or
// where this is a wrapper, the one that came first.
func (r *watchedRank) split(all []held) (main, rest []held) {
	pick := 0
	for _, h := range all {
		switch {
		case !h.Child:
			pick = h.PID
		case pick == 0 && h.PID == r.main:
			pick = r.main
		}
	}
	if pick == 0 {
		pick = slices.MinFunc(all, func(a, b held) int { return a.PID - b.PID }).PID
	}
	r.main = pick
	for _, h := range all {
		if h.PID == pick {
			main = append(main, h)
		} else {
			rest = append(rest, h)
		}
	}
	return main, rest
}

// judge tells whether a rank is on its own device, and which others it is on. A device
// that the plan gave to the host and to no rank is anybody's.
func (h *watchedHost) judge(r *watchedRank, main []held) (own bool, away []held) {
	for _, x := range main {
		switch {
		case r.Device == nil && x.device == nil:
			away = append(away, x)
		case x.device != nil && (len(x.device.ranks) == 0 || x.isOf(r.Rank.Rank)):
			own = true
		default:
			away = append(away, x)
		}
	}
	isMeasured := slices.ContainsFunc(away, func(x held) bool { return x.Bytes != nil })
	if own && len(away) > 1 && len(main) >= len(h.devices) && !isMeasured {
		away = nil // on all of them, and how much is not told: peer-to-peer, most likely
	}
	return own, away
}

// isOnItsWay reports whether a rank has opened the first device that it sees and may open
// its own the next moment.
func (h *watchedHost) isOnItsWay(r *watchedRank, away []held, at float64) bool {
	if r.away < 0 {
		r.away = at
	}
	return len(away) == 1 && h.isFirst(away[0].device) && at-r.away < settle
}

// isFirst reports whether a device is the one that ranks know as cuda:0.
func (h *watchedHost) isFirst(d *watchedDevice) bool {
	return d != nil && h.part.Visibility == "host" && len(h.part.Devices) > 0 && d.Device == h.part.Devices[0]
}

// grew reports whether a thing is new, or at least twice as much as when it was last said,
// and takes it for said.
func (w *Watch) grew(h *watchedHost, code, thing string, much int) bool {
	key := fmt.Sprintf("%s %d %s", code, h.at, thing)
	if said := w.said[key]; said > 0 && much < 2*said {
		return false
	}
	w.said[key] = much
	return true
}

// say takes a finding; severity "" is the code's own.
func (w *Watch) say(f rule.Finding, severity rule.Severity, fix, format string, args ...any) {
	if severity == "" {
		known, _ := codes.Find(f.Code)
		severity = known.Severity
	}
	f.Severity, f.Fix, f.Message = severity, fix, fmt.Sprintf(format, args...)
	w.found = append(w.found, f)
}
