package check

import (
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Empty judges a host's devices before an attempt, or after the end of one: those of the
// plan are seen empty, or their holders are named. ours tells the processes of this run,
// which may take a moment to go; nobody waits here. What others held when the plan was
// made was said then.
func Empty(p *plan.Plan, host int, d *facts.Devices, ours func(pid int) bool) []Finding {
	part := p.Hosts[host]
	if d == nil || len(part.Devices) == 0 {
		return nil
	}
	j := &judge{in: Input{Plan: p}}
	if d.Inventory == nil {
		j.add(Finding{Code: codes.CannotSee, Host: part.Name}, Warn, "", "its GPUs cannot be looked at: %s", d.None)
		return j.found
	}
	claims, _ := p.Claims(host)
	for _, before := range p.Before(host) {
		e := &emptying{judge: j, part: part, before: before, ranks: ranksOf(p, host, before.Device), shared: claims == nil}
		e.look(d, ours)
	}
	sortWorstFirst(j.found)
	return j.found
}

// emptying is one device that should be empty.
type emptying struct {
	*judge
	part   plan.Host
	before plan.Before
	ranks  []int
	shared bool
}

func (e *emptying) look(d *facts.Devices, ours func(pid int) bool) {
	for _, g := range d.Inventory.GPUs {
		if !holds(g, e.before.Device) {
			continue
		}
		switch g.State {
		case gpu.StateLost:
			e.say(codes.GPULost, Fail, rebootFix, "lost, fallen off the bus (%s)", g.PCI)
		case gpu.StateNeedsReset:
			e.say(codes.GPUNeedsReset, Fail, resetFix, "of no use before a reset")
		case gpu.StateUnknown:
			e.say(codes.GPUSilent, Fail, leaveOut, "no proper answer from the driver")
		default:
			e.holders(useOf(g, e.before.Device, d.Owners), ours)
		}
		return
	}
	e.say(codes.GPUMissing, Fail, "the run cannot go on with this plan", "%s of the plan (%s) is not there any more", e.before.Device, e.before.Device.UUID)
}

func (e *emptying) holders(s holding, ours func(pid int) bool) {
	left, others := s, s
	left.holders, others.holders = nil, nil
	for _, p := range s.holders {
		switch {
		case ours(p.PID):
			left.holders = append(left.holders, p)
		case !e.before.PIDs[p.PID]:
			others.holders = append(others.holders, p)
		}
	}
	severity := lowered(lowered(Fail, !e.part.Claimed, Warn), e.shared, Info)
	if len(left.holders) > 0 {
		e.say(codes.LeftBehind, Warn, "if it stays, it hangs in the driver (ps: state D) and only a reboot ends it", "%s, left by this run", left.words(e.before.Device))
	}
	if len(others.holders) > 0 {
		e.say(codes.GPUInUse, severity, "ask whose it is to leave it, or stop the run and take other GPUs", "%s", others.words(e.before.Device))
	}
	if len(s.holders) == 0 && s.used != nil && s.unexplained > idleMemory && *s.used > e.before.Used+idleMemory {
		e.say(codes.MemoryUnexplained, severity, "the driver frees memory a moment after a process has ended; if it stays, the GPU needs a reset",
			"%s%s in use, %s before the run, and no process shows that holds it", ofPart(e.before.Device), bytesWord(*s.used), bytesWord(e.before.Used))
	}
}

func (e *emptying) say(code string, severity Severity, fix, format string, args ...any) {
	f := Finding{Code: code, Host: e.part.Name, GPU: &e.before.Device.Index}
	if len(e.ranks) == 1 {
		f.Rank = &e.ranks[0]
	}
	e.add(f, severity, fix, format, args...)
}
