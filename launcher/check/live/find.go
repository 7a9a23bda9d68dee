package live

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// placements are ranks with what they hold.
type placements []placement

type placement struct {
	rank *watchedRank
	held held
}

func (p *placements) add(r *watchedRank, all []held) {
	for _, h := range all {
		*p = append(*p, placement{r, h})
	}
}

// newByDevice groups the ranks of which a thing is said for the first time by the device.
func (w *Watch) newByDevice(h *watchedHost, code string, all placements) []placements {
	var groups []placements
	at := map[string]int{}
	for _, p := range all {
		if !w.grew(h, code, fmt.Sprint(w.number(p.rank.Rank.Rank), " ", p.held.UUID), 1) {
			continue
		}
		i, known := at[p.held.UUID]
		if !known {
			i = len(groups)
			at[p.held.UUID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

func (p placements) ranks() []int {
	var ranks []int
	for _, one := range p {
		if n := one.rank.Rank.Rank; !slices.Contains(ranks, n) {
			ranks = append(ranks, n)
		}
	}
	slices.Sort(ranks)
	return ranks
}

func (p placements) held() []held {
	var all []held
	for _, one := range p {
		all = append(all, one.held)
	}
	return all
}

// describeRanks are ranks, or the tasks that have their places, as people name them: rank 3,
// ranks 1-7.
func (w *Watch) describeRanks(ranks []int) string {
	numbers := make([]int, len(ranks))
	for i, rank := range ranks {
		numbers[i] = w.number(rank)
	}
	return text.Numbered(w.plan.Unit(), numbers)
}

// number is what the worker in a place is counted as.
func (w *Watch) number(place int) int {
	if task, has := w.tasks[place]; has {
		return task
	}
	return place
}

// describeDevice name a device and whose it is: GPU 0 (0000:1b:00.0), which is rank 0's.
func (w *Watch) describeDevice(x held) string {
	switch d := x.device; {
	case d == nil && x.beside != "":
		return fmt.Sprintf("%s (%s), which the plan does not have", x.beside, x.UUID)
	case d == nil:
		return fmt.Sprintf("a GPU that the plan does not have (%s)", x.UUID)
	case len(d.ranks) == 1:
		return fmt.Sprintf("%s (%s), which is %s's", d.Device, d.PCI, w.describeRanks(d.ranks))
	default:
		return fmt.Sprintf("%s (%s), which belongs to %s", d.Device, d.PCI, w.describeRanks(d.ranks))
	}
}

// finding is the place of placements, all on one device.
func (p placements) finding(h *watchedHost, code string) rule.Finding {
	f := rule.Finding{Code: code, Host: h.name}
	if d := p[0].held.device; d != nil {
		f.GPU = &d.Index
	}
	if ranks := p.ranks(); len(ranks) == 1 {
		f.Rank = &ranks[0]
	}
	return f
}

const setDevice = "call torch.cuda.set_device(LOCAL_RANK) before the first CUDA call (local_rank = int(os.environ[\"LOCAL_RANK\"])), " +
	"and give torch.load map_location; or let each rank see its own GPU only: ranks { visibility = \"rank\" }"

// placementFix is the advice for a rank on a device that is not its own.
func (h *watchedHost) placementFix(d *watchedDevice) string {
	switch {
	case h.isFirst(d):
		return setDevice
	case h.part.Visibility == "rank" || d == nil:
		return "something in the script or in setup sets CUDA_VISIBLE_DEVICES anew: leave it as muster sets it"
	}
	return "look for a number of a device in the script (cuda:N, .cuda(N), device_map): a rank's own is cuda:LOCAL_RANK, not cuda:RANK"
}

func (w *Watch) sayExtra(h *watchedHost, all placements) {
	for _, group := range w.newByDevice(h, codes.ExtraGPU, all) {
		x := group[0].held
		w.say(group.finding(h, codes.ExtraGPU), "", h.placementFix(x.device), "%s on %s opened %s: memory of it is taken%s, and what is put there by mistake is not where it belongs",
			w.describeRanks(group.ranks()), h.name, w.describeDevice(x), total(group.held()))
	}
}

func (w *Watch) sayWrong(h *watchedHost, all placements) {
	for _, group := range w.newByDevice(h, codes.WrongGPU, all) {
		x, ranks := group[0].held, group.ranks()
		gave, verb := "the plan gave each another", "run"
		if d := group[0].rank.Device; len(ranks) == 1 {
			gave, verb = "the plan gave it none", "runs"
			if d != nil {
				gave = fmt.Sprintf("the plan gave it %s (%s)", *d, d.PCI)
			}
		}
		w.say(group.finding(h, codes.WrongGPU), "", h.placementFix(x.device), "%s on %s %s on %s; %s", w.describeRanks(ranks), h.name, verb, w.describeDevice(x), gave)
	}
}

// sayShared tells of devices that ranks use beside those that the plan gave them to.
func (w *Watch) sayShared(h *watchedHost, wrong placements, byRank [][]held) {
	for _, d := range h.devices {
		ranks := []int{}
		strangers := 0
		for i, r := range h.ranks {
			isOn := func(x held) bool { return x.device == d }
			isStranger := slices.ContainsFunc(wrong, func(p placement) bool { return p.rank == r && isOn(p.held) })
			isOwner := slices.Contains(d.ranks, r.Rank.Rank) && slices.ContainsFunc(byRank[i], isOn)
			if isStranger {
				strangers++
			}
			if isStranger || isOwner {
				ranks = append(ranks, r.Rank.Rank)
			}
		}
		if strangers == 0 || len(ranks) < 2 || !w.grew(h, codes.SharedGPU, d.UUID, len(ranks)) {
			continue
		}
		means := "they share its memory and its time"
		if w.plan.Backend == "nccl" {
			means = "NCCL refuses that (\"Duplicate GPU detected\") or hangs"
		}
		w.say(rule.Finding{Code: codes.SharedGPU, Host: h.name, GPU: &d.Index}, "", h.placementFix(d),
			"%s on %s are all on %s: %s", w.describeRanks(ranks), h.name, w.describeDevice(held{device: d}), means)
	}
}

// sayChildren tells of children of ranks that hold memory of their own.
func (w *Watch) sayChildren(h *watchedHost, all placements) {
	processes := map[int]int{}
	for _, p := range all {
		processes[p.rank.Rank.Rank]++
	}
	grew := map[int]bool{}
	for rank, n := range processes {
		grew[rank] = w.grew(h, codes.ChildOnGPU, fmt.Sprint(rank), n)
	}
	var fresh placements
	for _, p := range all {
		if grew[p.rank.Rank.Rank] {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return
	}
	f := rule.Finding{Code: codes.ChildOnGPU, Host: h.name}
	ranks := fresh.ranks()
	if len(ranks) == 1 {
		f.Rank = &ranks[0]
	}
	children, hold, self := fmt.Sprintf("%d child processes", len(fresh)), "hold", "themselves"
	if len(fresh) == 1 {
		children, hold, self = "a child process", "holds", "itself"
	}
	first := fresh[0].held
	w.say(f, "", "data loader workers should not touch CUDA: leave tensors on the CPU in dataset and collate_fn, and move them in the training loop. Each process costs a context of some hundred MiB",
		"%s of %s on %s %s memory of GPUs by %s%s: %s", children, w.describeRanks(ranks), h.name, hold, self, total(fresh.held()), describeHolder(first.Holder)+andMore(len(fresh)-1))
}

func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// sayWithout tells of ranks that have opened no device for a while.
func (w *Watch) sayWithout(h *watchedHost, s Sight, byRank [][]held, served map[string]bool) {
	var ranks []int
	severity := rule.Info
	for i, r := range h.ranks {
		since, long := s.At-r.began, "info"
		if since >= noGPUWarn {
			long = "warn"
		}
		isSilent := since >= noGPUInfo && r.Device != nil && !r.ended && !r.proven &&
			len(byRank[i]) == 0 && !served[r.Device.UUID]
		if isSilent && (s.Blind == "" || h.isEmpty(r, s)) && w.grew(h, codes.RankWithoutGPU, fmt.Sprint(long, w.number(r.Rank.Rank)), 1) {
			ranks = append(ranks, r.Rank.Rank)
			if long == "warn" {
				severity = rule.Warn
			}
		}
	}
	if len(ranks) == 0 {
		return
	}
	f := rule.Finding{Code: codes.RankWithoutGPU, Host: h.name}
	have, gave := "have", "their own are empty"
	if len(ranks) == 1 {
		d := h.ranks[ranks[0]-h.part.FirstRank].Device
		f.Rank, f.GPU, have, gave = &ranks[0], &d.Index, "has", fmt.Sprintf("the plan gave it %s (%s)", *d, d.PCI)
	}
	w.say(f, severity, "it may still import or read data: py-spy dump --pid PID shows where it is; if it trains on the CPU, see whether torch.cuda.is_available() there",
		"%s on %s %s opened no GPU %d s after the start; %s", w.describeRanks(ranks), h.name, have, int(s.At-h.ranks[ranks[0]-h.part.FirstRank].began), gave)
}

// emptyAs is how much more than before the start may be in use of a device that nobody
// has opened: a CUDA context takes more.
const emptyAs = 128 << 20

// isEmpty reports whether a rank's device was seen as empty as before, where only memory
// can be seen.
func (h *watchedHost) isEmpty(r *watchedRank, s Sight) bool {
	for _, d := range h.devices {
		if d.Device == *r.Device {
			used, known := s.Used[d.UUID]
			return known && used < d.before.Used+emptyAs
		}
	}
	return false
}

// sayForeign tells of processes of others that have come to devices of the plan since it
// was made.
func (w *Watch) sayForeign(h *watchedHost, others []held) {
	for _, d := range h.devices {
		var words []string
		for _, x := range others {
			if x.device == d && !d.before.PIDs[x.PID] && w.grew(h, codes.ForeignProcess, fmt.Sprint(x.PID, " ", d.UUID), 1) {
				words = append(words, describeHolder(x.Holder))
			}
		}
		if len(words) == 0 {
			continue
		}
		f := rule.Finding{Code: codes.ForeignProcess, Host: h.name, GPU: &d.Index}
		if len(d.ranks) == 1 {
			f.Rank = &d.ranks[0]
		}
		severity := rule.Warn
		if h.shared {
			severity = rule.Info
		}
		w.say(f, severity, "ask whose it is to leave it; the run may be short of memory there, or slow",
			"%sa process that is not of this run has come to %s: %s", f.Where(), w.describeDevice(held{device: d}), rule.Holders(words))
	}
}

// sayCrowded counts the processes on devices where they cannot be told apart.
func (w *Watch) sayCrowded(h *watchedHost, others []held) {
	for _, d := range h.devices {
		n := 0
		for _, x := range others {
			if x.device == d && !d.before.PIDs[x.PID] {
				n++
			}
		}
		if n <= max(len(d.ranks), 1) || !w.grew(h, codes.CrowdedGPU, d.UUID, n) {
			continue
		}
		f := rule.Finding{Code: codes.CrowdedGPU, Host: h.name, GPU: &d.Index}
		w.say(f, "", h.placementFix(d)+"; data loaders should not touch CUDA",
			"%s%d processes hold memory of %s: whose they are cannot be seen there, other ranks or data loaders most likely", f.Where(), n, w.describeDevice(held{device: d}))
	}
}
