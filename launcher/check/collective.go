package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/gpus"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/collective"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plural"
)

// Measured is what ranks have said when they were asked to work together.
type Measured struct {
	Plan *plan.Plan
	Ask  collective.Ask
	Said []collective.Said
	// Failed is why the run that measured has failed; nil: it has not.
	Failed *RunFailed
}

// RunFailed is the cause of a failed run.
type RunFailed struct {
	Host, Message string
	Tail          string // its last words
}

// Collective judges what was measured: who is slow, wrong or hangs. Each host was paired
// with two others, so that one of them that fails with both is told from a way between two
// that fails.
func Collective(m Measured) []Finding {
	c := &collectiveJudge{Measured: m, byPhase: map[string]map[int]collective.Said{}}
	for _, s := range m.Said {
		if s.Rank < 0 || s.Rank >= len(m.Plan.Ranks) {
			continue
		}
		if c.byPhase[s.Phase] == nil {
			c.byPhase[s.Phase] = map[int]collective.Said{}
		}
		c.byPhase[s.Phase][s.Rank] = s
	}
	switch {
	case c.faults(): // nothing is measured together then
		c.compute()
	case len(c.byPhase[collective.Torch]) > 0:
		c.failed()
		c.compute()
		c.together()
	default:
		c.failed()
	}
	rule.Sort(c.found)
	return c.found
}

type collectiveJudge struct {
	Measured
	found   []Finding
	byPhase map[string]map[int]collective.Said
	pairs   []measuredPair
}

// add takes a finding about what where says.
func (c *collectiveJudge) add(where Finding, fix, format string, args ...any) {
	code, _ := codes.Find(where.Code)
	c.found = append(c.found, rule.Find(where, fix, format, args...).As(code.Severity)...)
}

const together = "what keeps them apart is to be looked at there: cable, switch port, firewall, driver; leave a host out by its name in hosts to go on without it"

// failed is about a run that did not get through.
func (c *collectiveJudge) failed() {
	switch {
	case c.Failed != nil:
		c.add(Finding{Code: codes.CollectiveFailed, Host: c.Failed.Host}, c.Failed.Tail, "ranks did not get through the measuring: %s", c.Failed.Message)
	case len(c.Said) == 0:
		c.add(Finding{Code: codes.CollectiveFailed}, "muster check without --collective tells what of hosts and torch is known", "ranks have said nothing of what they measured")
	}
}

// compute judges the products of matrices of single ranks.
func (c *collectiveJudge) compute() {
	said := c.byPhase[collective.Compute]
	times := map[string][]float64{} // by the kind of GPU
	for _, s := range said {
		if s.State == collective.OK {
			times[s.Name] = append(times[s.Name], s.Seconds)
		}
	}
	for rank := range c.Plan.Ranks {
		s, told := said[rank]
		where := c.rankFinding(codes.ComputeWrong, rank)
		switch usual := median(times[s.Name]); {
		case !told || s.Fault != "":
		case s.State != collective.OK:
			c.add(where, gpus.LeaveOut, "rank %d could not multiply matrices: %s", rank, describeState(s, c.Ask))
		case s.Wrong > 0:
			c.add(where, gpus.LeaveOut+". Run the check again before: a card that computes wrongly once is to be replaced", "rank %d multiplied matrices, and %s wrong", rank, plural.Are(s.Wrong, "number"))
		case len(times[s.Name]) > 2 && s.Seconds > 2*usual:
			where.Code = codes.ComputeSlow
			c.add(where, "the whole job is as slow as its slowest rank: look at heat, power and who else computes there", "rank %d multiplies matrices in %s, the median of its kind is %s", rank, timeWord(s.Seconds), timeWord(usual))
		}
		c.pcie(rank, s)
	}
}

// pcie is about a link that is not what it could be while it is used.
func (c *collectiveJudge) pcie(rank int, s collective.Said) {
	if s.PCIe == nil {
		return
	}
	var less []string
	for _, v := range []struct{ now, best, what string }{{s.PCIe.Width, s.PCIe.WidthMax, "x%s of x%s"}, {s.PCIe.Speed, s.PCIe.SpeedMax, "%s of %s GT/s"}} {
		now, err := strconv.ParseFloat(v.now, 64)
		most, err2 := strconv.ParseFloat(v.best, 64)
		if err == nil && err2 == nil && now > 0 && now < most {
			less = append(less, fmt.Sprintf(v.what, v.now, v.best))
		}
	}
	if len(less) > 0 {
		c.add(c.rankFinding(codes.PCIeUnderLoad, rank), "reseat the card or its riser; a slot that is slower than the card by design is meant so, check { ignore = [\""+codes.PCIeUnderLoad+"\"] }",
			"PCIe link while it is used: %s", strings.Join(less, ", "))
	}
}

// rankFinding is a finding about a rank, and its GPU.
func (c *collectiveJudge) rankFinding(code string, rank int) Finding {
	r := c.Plan.Ranks[rank]
	f := Finding{Code: code, Host: c.Plan.Hosts[r.Host].Name, Rank: &rank}
	if r.Device != nil {
		f.GPU = &r.Device.Index
	}
	return f
}

// together judges the sums over ranks, of pairs of hosts and of all.
func (c *collectiveJudge) together() {
	c.measurePairs()
	all := c.sum(collective.All, c.ranksOn(c.everyHost()...))
	explained := c.bad(codes.CollectiveHang, "do not get through an all-reduce", func(s sum) string { return s.trouble })
	if all.trouble != "" && !explained {
		c.add(Finding{Code: codes.CollectiveHang}, "", "%s do not get through an all-reduce together%s: %s", plural.Of(len(c.Plan.Ranks), "rank"), c.though(), all.trouble)
	}
	explained = c.bad(codes.CollectiveWrong, "get a wrong sum from an all-reduce", func(s sum) string {
		if s.wrong > 0 {
			return plural.Are(s.wrong, "number") + " wrong"
		}
		return ""
	})
	if all.wrong > 0 && !explained {
		c.add(Finding{Code: codes.CollectiveWrong}, "", "%s get a wrong sum from an all-reduce%s: %s wrong", plural.Of(len(c.Plan.Ranks), "rank"), c.though(), plural.Are(all.wrong, "number"))
	}
	c.slow()
	c.rates(all)
}

// though tells what went well where only all together do not.
func (c *collectiveJudge) though() string {
	if len(c.pairs) == 0 {
		return ""
	}
	return ", though each pair of hosts does well"
}

// rates tell what was measured.
func (c *collectiveJudge) rates(all sum) {
	if all.trouble != "" || all.seconds == 0 {
		return
	}
	words := fmt.Sprintf("an all-reduce of %s over %s takes %s", text.Bytes(uint64(all.bytes)), plural.Of(len(c.Plan.Ranks), "rank"), timeWord(all.seconds))
	var rates []float64
	for _, p := range c.pairs {
		if p.trouble == "" {
			rates = append(rates, 1/p.perByte())
		}
	}
	if len(rates) > 0 {
		slices.Sort(rates)
		words += fmt.Sprintf("; pairs of hosts sum %s", rateWord(rates[0]))
		if last := rateWord(rates[len(rates)-1]); last != rateWord(rates[0]) {
			words += " to " + last
		}
	}
	c.add(Finding{Code: codes.CollectiveRate}, "", "%s", words)
}

// sum is what an all-reduce came to.
type sum struct {
	trouble string // why it did not get through; "" if it did
	wrong   int    // numbers
	bytes   int
	seconds float64
}

func (s sum) perByte() float64 { return s.seconds / float64(s.bytes) }

// measuredPair is the sum of a pair of hosts.
type measuredPair struct {
	hosts [2]int
	sum
}

// measurePairs finds what each pair of hosts came to.
func (c *collectiveJudge) measurePairs() {
	for number, pairs := range c.Ask.Rounds {
		for _, hosts := range pairs {
			c.pairs = append(c.pairs, measuredPair{hosts, c.sum(fmt.Sprint("round ", number), c.ranksOn(hosts[:]...))})
		}
	}
}

// sum is what these ranks say together of a phase. Whoever has waited for others in vain
// tells less than one who was there.
func (c *collectiveJudge) sum(phase string, ranks []int) sum {
	var s sum
	late := ""
	for _, rank := range ranks {
		said, told := c.byPhase[phase][rank]
		switch {
		case !told:
			late = fmt.Sprintf("rank %d has said nothing", rank)
		case said.State == collective.Late:
			late = fmt.Sprintf("rank %d has waited in vain for the others", rank)
		case said.State != collective.OK && s.trouble == "":
			s.trouble = describeState(said, c.Ask)
		case said.State == collective.OK:
			s.wrong, s.seconds, s.bytes = max(s.wrong, said.Wrong), max(s.seconds, said.Seconds), said.Bytes
		}
	}
	if s.trouble == "" {
		s.trouble = late
	}
	if s.trouble == "" && (s.bytes <= 0 || s.seconds <= 0) && len(ranks) > 1 {
		s.trouble = "it was not measured"
	}
	return s
}

func (c *collectiveJudge) ranksOn(hosts ...int) []int {
	var ranks []int
	for i, r := range c.Plan.Ranks {
		if slices.Contains(hosts, r.Host) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

func (c *collectiveJudge) everyHost() []int {
	hosts := make([]int, len(c.Plan.Hosts))
	for i := range hosts {
		hosts[i] = i
	}
	return hosts
}

// bad tells of the hosts, and the ways between two, that something is wrong with. It
// reports whether there are any.
func (c *collectiveJudge) bad(code, what string, wrong func(sum) string) bool {
	isBad := func(p measuredPair) bool { return wrong(p.sum) != "" }
	hosts, ways := c.blame(isBad)
	for _, h := range hosts {
		at := slices.IndexFunc(c.pairs, func(p measuredPair) bool { return slices.Contains(p.hosts[:], h) && isBad(p) })
		c.add(Finding{Code: code, Host: c.Plan.Hosts[h].Name}, together, "its ranks %s with those of %s: %s", what, c.partners(h, isBad), wrong(c.pairs[at].sum))
	}
	for _, p := range ways {
		c.add(Finding{Code: code}, together, "%s and %s: their ranks %s together%s: %s", c.Plan.Hosts[p.hosts[0]].Name, c.Plan.Hosts[p.hosts[1]].Name, what, c.withOthers(), wrong(p.sum))
	}
	return len(hosts)+len(ways) > 0
}

// withOthers tells of a pair of several that others do well with its hosts.
func (c *collectiveJudge) withOthers() string {
	if len(c.pairs) < 2 {
		return ""
	}
	return ", and do so with others"
}

// blame parts bad pairs: hosts that no pair does well with, and pairs of others. Of two hosts
// neither is to be blamed.
func (c *collectiveJudge) blame(isBad func(measuredPair) bool) (hosts []int, ways []measuredPair) {
	bad, good := map[int]int{}, map[int]int{}
	for _, p := range c.pairs {
		for _, h := range p.hosts {
			if isBad(p) {
				bad[h]++
			} else {
				good[h]++
			}
		}
	}
	for _, h := range c.everyHost() {
		if bad[h] > 1 && good[h] == 0 {
			hosts = append(hosts, h)
		}
	}
	for _, p := range c.pairs {
		if isBad(p) && !slices.Contains(hosts, p.hosts[0]) && !slices.Contains(hosts, p.hosts[1]) {
			ways = append(ways, p)
		}
	}
	return hosts, ways
}

// partners are the names of the hosts that a host is in such pairs with.
func (c *collectiveJudge) partners(host int, in func(measuredPair) bool) string {
	var names []string
	for _, p := range c.pairs {
		if slices.Contains(p.hosts[:], host) && in(p) {
			other := p.hosts[0] + p.hosts[1] - host
			names = append(names, c.Plan.Hosts[other].Name)
		}
	}
	return strings.Join(names, " and ")
}

// noise is by how many seconds a time may be longer and mean nothing.
var noise = map[string]float64{"gloo": 0.05, "nccl": 0.01}

// slow tells of hosts whose better pair takes more than twice the median host's, and of
// pairs that do where neither of its hosts is slow with others.
func (c *collectiveJudge) slow() {
	if len(c.Plan.Hosts) < 3 {
		return // nothing to compare with
	}
	best := map[int]float64{}
	for _, p := range c.pairs {
		for _, h := range p.hosts {
			if p.trouble == "" && (best[h] == 0 || p.perByte() < best[h]) {
				best[h] = p.perByte()
			}
		}
	}
	var all []float64
	for _, t := range best {
		all = append(all, t)
	}
	usual := median(all)
	hosts, ways := c.blame(func(p measuredPair) bool {
		expected := usual * float64(p.bytes)
		return p.trouble == "" && p.seconds > 2*expected && p.seconds-expected > noise[c.Ask.Backend]
	})
	const fix = "the whole job is as slow as its slowest host: look at the speed that its interface has agreed on (ethtool), at errors of the link, and at who else uses it"
	for _, h := range hosts {
		c.add(Finding{Code: codes.CollectiveSlow, Host: c.Plan.Hosts[h].Name}, fix, "its ranks sum %s with those of another host at best, the median host's %s", rateWord(1/best[h]), rateWord(1/usual))
	}
	for _, p := range ways {
		c.add(Finding{Code: codes.CollectiveSlow}, fix, "%s and %s: their ranks sum %s with each other, the median host's %s", c.Plan.Hosts[p.hosts[0]].Name, c.Plan.Hosts[p.hosts[1]].Name, rateWord(1/p.perByte()), rateWord(1/usual))
	}
}

// describeState say how a phase ended that did not end well.
func describeState(s collective.Said, a collective.Ask) string {
	switch {
	case s.State == collective.Hung:
		return fmt.Sprintf("nothing came of it within %.0f s", a.Limit)
	case s.Error != "":
		return firstLine(s.Error)
	}
	return "its process ended without a word"
}

// median is the lower one of two in the middle; 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)/2]
}

func timeWord(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.3g ms", seconds*1000)
	}
	return fmt.Sprintf("%.3g s", seconds)
}

// rateWord is bytes a second as networks are rated.
func rateWord(rate float64) string {
	if rate >= 1e9 {
		return fmt.Sprintf("%.2g GB/s", rate/1e9)
	}
	return fmt.Sprintf("%.3g MB/s", rate/1e6)
}
