// Package nccl is what is known of NCCL's environment, and of what torch reads for its
// NCCL backend: data and pure functions. It says what a value means to the library, what
// the library would misread, and what a setting does on a host's links. It knows neither
// job files nor how hosts were looked at.
//
// Facts come from the NCCL user guide, page "Environment Variables", of NCCL 2.30 and
// the development branch after it (docs/userguide/source/env.rst in github.com/NVIDIA/nccl);
// where it is silent, from NCCL's source, named at each place; for torch from
// torch/csrc/distributed/c10d (ProcessGroupNCCL.hpp, Utils.hpp, FlightRecorder.hpp).
package nccl

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
