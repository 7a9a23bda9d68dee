package restart

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/failure"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
	"github.com/muster-dev/muster/launcher/plural"
)

// Decide says what follows a failure. rules is nil without a restart block.
func Decide(h History, v failure.Verdict, rules *Rules, now float64) Decision {
	c, _ := class.Find(v.Class)
	d := decider{given: h, verdict: v, class: c, rules: rules, now: now}
	d.Rule, d.InForce = Unset, InForce{slices.Clone(h.InForce.Rules), h.InForce.Remedy}
	d.decide()
	if !d.Restart {
		return Decision{Rule: Unset, InForce: h.InForce, Reason: d.Reason, Host: d.Host, Advice: c.Advice}
	}
	return d.Decision
}

// decider is a decision in the making.
type decider struct {
	given History
	Decision
	verdict failure.Verdict
	class   class.Class
	rules   *Rules
	now     float64
	counted []Past // restarts that count against the budget now
}

// stop ends the run for a reason.
func (d *decider) stop(format string, args ...any) {
	d.Restart, d.Reason = false, fmt.Sprintf(format, args...)
}

func (d *decider) decide() {
	switch {
	case d.rules == nil:
		d.stop("the job file has no restart block")
		return
	case d.verdict.Restart == class.Never || d.class.Restart == class.Never:
		d.stop("%s is nothing that another attempt could better", d.verdict.Class)
		return
	}
	d.counted = d.countedNow()
	ladder := d.ladder()
	if d.ofHost(ladder) || !d.worth(ladder) || d.repeated() || d.spent() {
		return
	}
	d.Restart = true
	d.After = d.backoff()
	d.Reason = d.words()
}

// ladder are the rules that name most of the class, in the file's order.
func (d *decider) ladder() []int {
	names := []string{d.verdict.Class}
	if xid, ok := d.verdict.Numbers[verdict.NumXid]; ok {
		names = append(names, fmt.Sprintf("%s.%.0f", class.GPUXid, xid))
	}
	longest := ""
	var ladder []int
	for i, r := range d.rules.On {
		if !slices.ContainsFunc(names, func(name string) bool { return class.Matches(r.Class, name) }) {
			continue
		}
		switch {
		case len(r.Class) > len(longest):
			longest, ladder = r.Class, []int{i}
		case r.Class == longest:
			ladder = append(ladder, i)
		}
	}
	return ladder
}

// ofHost ends the run where the failure is a machine's. A rule of the job file may try a
// GPU again that still answers.
func (d *decider) ofHost(ladder []int) bool {
	gone := d.verdict.Class == class.GPULost || d.verdict.Class == class.HostLost || d.verdict.Class == class.AgentLost
	if d.verdict.Restart != class.OtherHost || len(ladder) > 0 && !gone {
		return false
	}
	host := d.given.Host
	if host == "" {
		host = "its host"
	}
	d.Host = d.given.Host
	d.stop("%s belongs to %s, and the next attempt would have the same hosts: repair it or leave it out", d.verdict.Class, host)
	return true
}

// worth is whether another attempt is wanted and can be of use; what it changes is noted.
func (d *decider) worth(ladder []int) bool {
	if len(ladder) > 0 {
		return d.byRule(ladder)
	}
	switch d.verdict.Restart {
	case class.Yes, class.Maybe:
		return true
	case class.WithConfig:
		if d.given.Failed.known() && d.given.Failed.healthy(d.rules.HealthyAfter) {
			return true // it may come as far again
		}
		d.stop("%s comes again unless a setting is changed: %s", d.verdict.Class, d.hint())
	case class.AfterFree:
		d.stop("%s comes again until somebody else lets go: on %q { wait_memory = \"10m\" } would wait for that", d.verdict.Class, d.verdict.Class)
	default:
		d.stop("%s comes again with the same program: %s", d.verdict.Class, d.hint())
	}
	return false
}

func (d *decider) hint() string {
	if d.wantsAllocator() {
		return `on "oom" {} would have muster try an allocator setting`
	}
	return fmt.Sprintf("on %q { ... } restarts with what you change there", d.verdict.Class)
}

// byRule picks the rung of a ladder. The one in force is tried again as far as its
// attempts go, those before it are not.
func (d *decider) byRule(ladder []int) bool {
	begin := 0
	for i, rule := range ladder {
		if slices.Contains(d.given.InForce.Rules, rule) {
			begin = i
		}
	}
	for i := begin; i < len(ladder); i++ {
		rule := d.rules.On[ladder[i]]
		used := d.used(ladder[i])
		if used < rule.limit(i == len(ladder)-1) {
			return d.apply(ladder[i], rule, ladder)
		}
	}
	last := d.rules.On[ladder[len(ladder)-1]]
	if limit := last.limit(true); limit == 0 {
		d.stop("on %q has attempts = 0", last.Class)
	} else {
		d.stop("on %q has no more to try: %s", last.Class, d.describeUsed(ladder))
	}
	return false
}

func (d *decider) describeUsed(ladder []int) string {
	used := 0
	for _, rule := range ladder {
		used += d.used(rule)
	}
	return fmt.Sprintf("%s by it %s", plural.Of(used, "restart"), d.window())
}

// unlimited is more than any budget.
const unlimited = 1 << 30

// limit is how often a rule is used in a row: a change is tried once unless the rule says
// otherwise, as is every rung that another one follows.
func (r Rule) limit(last bool) int {
	switch {
	case r.Attempts != Unset:
		return r.Attempts
	case last && len(r.Settings) == 0:
		return unlimited
	}
	return 1
}

// used is how often the rule's restarts count now.
func (d *decider) used(rule int) int {
	n := 0
	for _, p := range d.counted {
		if p.Rule == rule {
			n++
		}
	}
	return n
}

// apply takes a rule. One that only names a kind of memory failure has muster try what it
// knows; so does one that names several kinds without changing anything.
func (d *decider) apply(index int, rule Rule, ladder []int) bool {
	ofMemory := strings.HasPrefix(d.verdict.Class, "oom.")
	if ofMemory && rule.plain() && (rule.empty() || rule.Class != d.verdict.Class) {
		if !d.ownRemedy() {
			return false
		}
		d.Rule = index
		return true
	}
	d.Rule = index
	if rule.WaitMemory != Unset {
		d.WaitMemory = rule.WaitMemory
	}
	if len(rule.Settings) == 0 || slices.Contains(d.given.InForce.Rules, index) {
		return true
	}
	// The rung before it is replaced; other classes' rules stay in force.
	others := slices.DeleteFunc(d.InForce.Rules, func(i int) bool { return slices.Contains(ladder, i) })
	d.InForce.Rules = append(others, index)
	d.Changes = maps.Clone(rule.Settings)
	return true
}

// defaultWait is how long muster waits by itself for memory that somebody else holds.
const defaultWait = 600

// ownRemedy is what muster does by itself about GPU memory: a setting of the allocator for
// fragmentation, a bounded wait for other processes; the rest needs the user.
func (d *decider) ownRemedy() bool {
	switch {
	case d.verdict.Restart == class.OtherHost:
		d.Host = d.given.Host
		d.stop("%s on %s may be the GPU's: look at it before it is used again", d.verdict.Class, d.given.Host)
		return false
	case d.verdict.Class == class.OOMForeign, d.verdict.Class == class.OOMUnknown && d.verdict.Restart == class.Maybe:
		d.WaitMemory = defaultWait
		return true
	case d.wantsAllocator():
		return d.setAllocator()
	}
	d.stop("%s cannot be bettered by a setting that muster could choose: on %q { ... } restarts with what you change there", d.verdict.Class, d.verdict.Class)
	return false
}

// wantsAllocator is whether a setting of the allocator may help.
func (d *decider) wantsAllocator() bool {
	v := d.verdict
	return v.Class == class.OOMFragmentation || v.Class == class.OOMCapacity && v.Restart == class.WithConfig
}

// setAllocator chooses between the two settings that help, by torch's version.
func (d *decider) setAllocator() bool {
	remedy, taken := MaxSplit, d.given.MaxSplit
	if modern(d.given.Torch) && !d.given.MPS {
		remedy, taken = Expandable, d.given.Expandable
	}
	switch {
	case d.given.InForce.Remedy != NoRemedy:
		d.stop("%s came again although muster had set allocator { %s }", d.verdict.Class, d.given.InForce.Remedy)
		return false
	case taken:
		d.stop("%s came although the job file has allocator { %s }", d.verdict.Class, strings.Fields(string(remedy))[0])
		return false
	}
	name, value, _ := strings.Cut(string(remedy), " = ")
	d.InForce.Remedy = remedy
	d.Changes = map[string]string{"allocator." + name: strings.Trim(value, `"`)}
	return true
}

// modern is whether torch has expandable segments (2.1). One that is not known may not.
func modern(torch string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(torch, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	return major > 2 || major == 2 && minor >= 1
}

// repeated ends the run where the same failure has come before in the same situation, and
// nothing is changed or was got done since.
func (d *decider) repeated() bool {
	if !sameForce(d.InForce, d.given.InForce) || d.given.Failed.beyond(d.given.Past, d.rules.HealthyAfter) {
		return false
	}
	same := func(p Past) bool {
		return p.Signature == d.given.Failed.Signature && p.Situation == d.given.Failed.Situation
	}
	if !slices.ContainsFunc(d.given.Past, same) {
		return false
	}
	d.stop("the same failure came before under the same environment, arguments and hosts, and nothing was got done in between")
	return true
}

func sameForce(a, b InForce) bool { return slices.Equal(a.Rules, b.Rules) && a.Remedy == b.Remedy }

// countedNow are the restarts that the budget counts: within the window, and since the
// last attempt that ran long enough.
func (d *decider) countedNow() []Past {
	if d.given.Failed.healthy(d.rules.HealthyAfter) {
		return nil
	}
	var counted []Past
	for _, p := range d.given.Past {
		if p.healthy(d.rules.HealthyAfter) {
			counted = nil
		}
		if !p.Free && (d.rules.Within <= 0 || p.Ended > d.now-d.rules.Within) {
			counted = append(counted, p)
		}
	}
	return counted
}

// spent ends the run where the budget is used up.
func (d *decider) spent() bool {
	if len(d.counted) < d.rules.Attempts {
		return false
	}
	if d.rules.Attempts == 0 {
		d.stop("restart has attempts = 0")
		return true
	}
	d.stop("%d of %s used %s: %s", len(d.counted), plural.Of(d.rules.Attempts, "restart"), d.window(), d.classes())
	return true
}

// classes lists what the restarts that count were for.
func (d *decider) classes() string {
	counts := map[string]int{}
	for _, p := range d.counted {
		counts[p.Class]++
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d for %s", counts[name], name))
	}
	return strings.Join(words, ", ")
}

func (d *decider) window() string {
	if d.rules.Within <= 0 {
		return "in this " + cmp.Or(d.given.Of, "run")
	}
	return "within " + duration(d.rules.Within)
}

// maxBackoff bounds the wait; a longer one that the user has written stays.
const maxBackoff = 600

// backoff is nothing before the first restart, and doubles from then on.
func (d *decider) backoff() float64 {
	n := len(d.counted)
	if n == 0 {
		return 0
	}
	longest := max(maxBackoff, d.rules.Backoff)
	wait := d.rules.Backoff
	for ; n > 1 && wait < longest; n-- {
		wait *= 2
	}
	return min(wait, longest)
}

// words say why and with what the next attempt is made.
func (d *decider) words() string {
	words := []string{fmt.Sprintf("restart %d of %d %s after %s", len(d.counted)+1, d.rules.Attempts, d.window(), d.verdict.Class)}
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(d.Changes)) {
		changes = append(changes, name+" = "+d.Changes[name])
	}
	if len(changes) > 0 {
		words = append(words, "with "+strings.Join(changes, ", "))
	}
	if d.WaitMemory > 0 {
		words = append(words, "once GPU memory is free, waiting for it up to "+duration(d.WaitMemory))
	}
	if d.Rule != Unset {
		words = append(words, fmt.Sprintf("as on %q says", d.rules.On[d.Rule].Class))
	}
	if d.After > 0 {
		words = append(words, "in "+duration(d.After))
	}
	return strings.Join(words, ", ")
}

// duration writes seconds as a job file does.
func duration(seconds float64) string {
	whole := int(seconds)
	switch {
	case whole >= 3600 && whole%3600 == 0:
		return fmt.Sprintf("%dh", whole/3600)
	case whole >= 3600 && whole%60 == 0:
		return fmt.Sprintf("%dh%dm", whole/3600, whole%3600/60)
	case whole >= 60 && whole%60 == 0:
		return fmt.Sprintf("%dm", whole/60)
	case float64(whole) != seconds:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return fmt.Sprintf("%ds", whole)
}
