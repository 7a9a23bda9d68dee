package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// differing is a value that should be the same on all hosts.
type differing struct {
	code string
	what string // "driver", to be followed by a value
	fix  string
	of   map[int]string // by host; hosts that do not tell are not in it
	// severity is that of a pair of values.
	severity func(a, b string) Severity
}

// differ names the hosts that have another value than most; without a majority all of them.
func (j *judge) differ(d differing) {
	by := map[string][]int{}
	for _, host := range slices.Sorted(maps.Keys(d.of)) {
		by[d.of[host]] = append(by[d.of[host]], host)
	}
	if len(by) < 2 {
		return
	}
	values := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(values, func(a, b string) int { return len(by[b]) - len(by[a]) })
	if len(by[values[0]]) == len(by[values[1]]) {
		j.several(d.code, d.worst(values), d.fix, "hosts differ in %s: %s", d.what, j.table(values, by))
		return
	}
	usual := values[0]
	for _, value := range values[1:] {
		hosts := by[value]
		others := fmt.Sprintf("%s have %s", j.names(by[usual]), usual)
		if len(by[usual]) > mostNamed {
			others = fmt.Sprintf("%d of %d hosts have %s", len(by[usual]), len(d.of), usual)
		}
		if len(hosts) == 1 {
			j.add(Finding{Code: d.code, Host: j.in.Hosts[hosts[0]].Name}, d.severity(usual, value), d.fix, "%s %s, where %s", d.what, value, others)
		} else {
			j.several(d.code, d.severity(usual, value), d.fix, "%s have %s %s, where %s", j.names(hosts), d.what, value, others)
		}
	}
}

// worst is the severity of the two values that differ most.
func (d differing) worst(values []string) Severity {
	worst := Info
	for i, a := range values {
		for _, b := range values[:i] {
			switch d.severity(a, b) {
			case Fail:
				return Fail
			case Warn:
				worst = Warn
			}
		}
	}
	return worst
}

func (j *judge) table(values []string, by map[string][]int) string {
	parts := make([]string, len(values))
	for i, value := range values {
		parts[i] = fmt.Sprintf("%s on %s", value, j.names(by[value]))
	}
	return strings.Join(parts, "; ")
}

func (j *judge) names(hosts []int) string {
	names := make([]string, len(hosts))
	for i, host := range hosts {
		names[i] = j.in.Hosts[host].Name
	}
	return text.List(names, mostNamed)
}

// each collects a value of every host, without those that do not tell it.
func (j *judge) each(value func(h Host) string) map[int]string {
	all := map[int]string{}
	for i, h := range j.in.Hosts {
		if v := value(h); v != "" {
			all[i] = v
		}
	}
	return all
}

func always(s Severity) func(a, b string) Severity {
	return func(string, string) Severity { return s }
}

// byRelease is one severity where the first two numbers of versions differ, and another
// where only what follows does.
func byRelease(release, patch Severity) func(a, b string) Severity {
	return func(a, b string) Severity {
		if release2(a) != release2(b) {
			return release
		}
		return patch
	}
}

// release2 is 2.4 of 2.4.0+cu121.
func release2(version string) string {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
