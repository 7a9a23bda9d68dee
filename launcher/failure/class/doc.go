// Package class lists the kinds of failures by their names, which reports, job files and
// help refer to, and what NVIDIA's Xid numbers mean for a job. It is a leaf, so that a job
// file can be checked against it by a package that knows nothing of processes.
//
// Sources of the Xid table: NVIDIA's "XID Errors" catalog (docs.nvidia.com/deploy/xid-errors)
// as the gpud health daemon carries it (October 2025), and the verdicts of Azure's node
// health checks, Meta's GCM and Imbue's cluster-health where it leaves a choice.
package class

import (
	"slices"
	"strconv"
	"strings"
)

// Owner is who can do something about a failure.
type Owner string

// Owners.
const (
	Program     Owner = "program"     // its code, its sizes, its arguments
	Host        Owner = "host"        // this machine or its hardware
	Environment Owner = "environment" // what is around: limits, other processes, network, ports
	Nobody      Owner = "nobody"      // no failure, or the user's wish
)

// Restart is what another attempt can be worth.
type Restart string

// What another attempt is worth.
const (
	Yes        Restart = "yes"         // the same command can work
	Maybe      Restart = "maybe"       // that depends on what nobody has seen
	WithConfig Restart = "with-config" // after a changed setting only
	AfterFree  Restart = "after-free"  // once somebody else has let go
	OtherHost  Restart = "other-host"  // not on this machine
	No         Restart = "no"          // it will fail again
	Never      Restart = "n/a"         // nothing failed, or the end was wanted
)

// Class is one kind of failure.
type Class struct {
	Name    string
	Meaning string // in a line
	Owner   Owner
	// Restart is what another attempt is worth as long as nothing more is known.
	Restart Restart
	// Consequence is set where the cause is elsewhere: on another rank or with muster.
	Consequence bool
	// Symptom is set where something did not happen in time: whatever else has failed is
	// rather the cause.
	Symptom bool
	// Silent is set where time passes without anything being done, so that a long life is
	// no sign of progress.
	Silent bool
	// Advice is what the user can change, the best and least costly first.
	Advice []string
}

// Find is the class of that name.
func Find(name string) (Class, bool) {
	i := slices.IndexFunc(Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return Class{}, false
	}
	return Classes[i], true
}

// Names are all names, in the table's order.
func Names() []string {
	names := make([]string, len(Classes))
	for i, c := range Classes {
		names[i] = c.Name
	}
	return names
}

// Groups are the words that name several classes at once, such as "oom".
func Groups() []string {
	var groups []string
	for _, c := range Classes {
		if group, _, ok := strings.Cut(c.Name, "."); ok && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// Matches is whether a rule's class stands for the name: it is the name, or what comes
// before one of its dots.
func Matches(rule, name string) bool {
	rest, ok := strings.CutPrefix(name, rule)
	return ok && (rest == "" || rest[0] == '.')
}

// Known is whether a rule's class stands for any class, or for one Xid, as gpu.xid.63 does.
func Known(rule string) bool {
	if number, ok := strings.CutPrefix(rule, GPUXid+"."); ok {
		n, err := strconv.Atoi(number)
		return err == nil && n > 0 && strconv.Itoa(n) == number
	}
	return rule != "" && slices.ContainsFunc(Classes, func(c Class) bool { return Matches(rule, c.Name) })
}
