package plan

import (
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/failure/restart"
)

// Meeting is what is only known when an attempt starts: how the ranks find each other.
type Meeting struct {
	Run     string
	Attempt int
	// Task is the number of the task that the rank's place is taken by, in a plan that has tasks.
	Task       int
	MasterAddr string
	MasterPort int
	// Locals is each host's own address on its way to MasterAddr.
	Locals []string
	// Software is what each host was found to run with once setup was done; shorter where that is not known.
	Software []facts.Software
	// InForce is what restarts have changed.
	InForce restart.InForce
	// MPS is where the daemons of each host's devices are, by UUID, once they run.
	MPS []map[string]MPSFolders
	// Environ is what each host's environment told once setup was done: see facts.Telling.
	Environ []map[string]string
}

// Var is a variable of a rank's environment and where it comes from.
type Var struct {
	Name   string
	Value  string
	Source string // a rule in words, or FILE:LINE
	// Default is set where the host's own environment or setup wins over it.
	Default bool
	// OfHost is set where it is the host's own.
	OfHost bool
	// Sensitive is set where the value is a secret, to be seen by the worker only.
	Sensitive bool
}

// Shown is the value as people may see it.
func (v Var) Shown() string {
	if v.Sensitive {
		return facts.Hidden
	}
	return v.Value
}
