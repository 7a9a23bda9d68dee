// Package nccl knows the environment variables of NCCL, and of torch's NCCL backend: tables of which release reads
// which variable and how, and pure functions that say what a library would misread and what a setting does on a host.
//
// Facts come from the NCCL user guide, page "Environment Variables", of NCCL 2.30 and the development branch after it
// (docs/userguide/source/env.rst in github.com/NVIDIA/nccl); where it is silent, from NCCL's source, named at each
// place; for torch from torch/csrc/distributed/c10d (ProcessGroupNCCL.hpp, Utils.hpp, FlightRecorder.hpp).
package nccl

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Finding is something to know of a variable's value.
type Finding struct {
	Code    string // one of the constants below
	Message string // without a full stop
	Fix     string // what to do, without a full stop
	Host    string // "" where it is about every host
	Source  string // where the value was set; "" where only the caller knows
}

// Codes of findings.
const (
	CodeUnknown    = "nccl_unknown"      // nobody reads a variable of this name
	CodeVersion    = "nccl_version"      // the version found does not know it
	CodeDeprecated = "nccl_deprecated"   // it has another name now
	CodeNumber     = "nccl_number"       // text where a number is read
	CodeRange      = "nccl_range"        // a number beyond what it takes
	CodeWord       = "nccl_word"         // a word that is not known, or in the wrong case
	CodeLevel      = "nccl_level_number" // a distance as a number
	CodeList       = "nccl_list"         // a list that is not split as it looks
	CodePrefix     = "nccl_prefix"       // a name that takes others too
	CodeAlgorithm  = "nccl_algo"         // functions are left without an algorithm
	CodeCorrupt    = "nccl_ll128"        // may corrupt data
	CodeFile       = "nccl_file"         // a file that is not where it seems
	CodeP2P        = "nccl_p2p_off"      // GPUs that could reach each other will not
	CodeNetwork    = "nccl_slow_network" // a faster network is left aside
	CodeInterface  = "nccl_interface"    // an interface or device that is not there, or leads nowhere
	CodeNoEffect   = "nccl_no_effect"    // it does nothing as things are
	CodeSharedGPU  = "nccl_shared_gpu"   // two ranks on one GPU
	CodeMIG        = "nccl_mig"          // MIG devices, which it does not support
)

// Var is a variable of a worker's environment.
type Var struct {
	Name   string
	Value  string
	Source string // where it was set, or the rule that set it
	Note   string // why it is written so; "" where there is nothing to say
}

// Release is a release of NCCL or torch. The zero value is one that is not known.
type Release struct{ Major, Minor, Patch int }

// Version is what was found on a host. Of what is not known, only what holds for all releases is said.
type Version struct{ NCCL, Torch Release }

// ParseVersion reads the two versions as programs show them: "2.20.5", "2.4.0+cu121", "2.27.3-1". What it cannot read
// is not known.
func ParseVersion(nccl, torch string) Version {
	return Version{parseRelease(nccl), parseRelease(torch)}
}

var releaseForm = regexp.MustCompile(`^\s*v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?`)

func parseRelease(text string) Release {
	m := releaseForm.FindStringSubmatch(text)
	if m == nil {
		return Release{}
	}
	var n [3]int
	for i, digits := range m[1:] {
		n[i], _ = strconv.Atoi(digits) // the form has digits only, or nothing
	}
	return Release{n[0], n[1], n[2]}
}

func (r Release) known() bool { return r != Release{} }

// before is whether r is known to be older than other; false where other is not set.
func (r Release) before(other Release) bool {
	return r.known() && other.known() && r.compare(other) < 0
}

// since is whether r is known to be other or newer; false where other is not set.
func (r Release) since(other Release) bool {
	return r.known() && other.known() && r.compare(other) >= 0
}

func (r Release) compare(other Release) int {
	minor := cmp.Or(cmp.Compare(r.Minor, other.Minor), cmp.Compare(r.Patch, other.Patch))
	return cmp.Or(cmp.Compare(r.Major, other.Major), minor)
}

func (r Release) String() string {
	if r.Patch == 0 {
		return fmt.Sprintf("%d.%d", r.Major, r.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch)
}
