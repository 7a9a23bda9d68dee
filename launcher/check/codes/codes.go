// Package codes lists the findings of checks by their codes, which job files, scripts and
// help refer to. It is a leaf, so that a job file can be checked against it by a package
// that knows nothing of hosts.
package codes

import (
	_ "embed" // for the table
	"encoding/csv"
	"slices"
	"strings"
)

// Severity is what a finding means for the job. A host that is slow, or will fail one day,
// is worth a warning; only what keeps the job from running, or lets it fail before long,
// is a failure.
type Severity string

// Severities, the worst first.
const (
	Fail Severity = "fail" // the job is not started, or is stopped
	Warn Severity = "warn" // said, and the job goes on
	Info Severity = "info" // good to know
)

// Severities are all of them, the worst first.
var Severities = []Severity{Fail, Warn, Info}

// When says when a code is looked for.
type When string

// Times of checks.
const (
	Planning When = "plan"   // while the plan is made; the plan warns
	Before   When = "before" // before the first attempt, and GPUs before every attempt
	After    When = "after"  // while workers run
	Asked    When = "asked"  // by muster check --collective only
)

// Code is one kind of finding.
type Code struct {
	Name string
	// Severity is what it has by default. Circumstances lower it, and where Worst is set
	// raise it up to that; a job file's severity replaces all of them.
	Severity Severity
	Worst    Severity
	When     When
	Meaning  string // in a line
	// Placement is set where a rank is not where the plan put it: wrong_gpu = "stop" is
	// about these.
	Placement bool
}

// Codes of findings.
const (
	GPULost           = "gpu_lost"
	GPUNeedsReset     = "gpu_needs_reset"
	GPUSilent         = "gpu_silent"
	GPUMissing        = "gpu_missing"
	GPURecovery       = "gpu_recovery"
	ECCUncorrected    = "ecc_uncorrected"
	ECCHistory        = "ecc_history"
	ECCModeDiffers    = "ecc_mode_differs"
	RemapFailed       = "remap_failed"
	RemapPending      = "remap_pending"
	RetirePending     = "retire_pending"
	RetiredMany       = "retired_many"
	XidSinceBoot      = "xid_since_boot"
	XidsUnknown       = "xids_unknown"
	NVLinksDown       = "nvlinks_down"
	ComputeMode       = "compute_mode"
	MIGMode           = "mig_mode"
	FabricNotReady    = "fabric_not_ready"
	FabricManager     = "fabric_manager"
	Throttled         = "throttled"
	PCIeNarrow        = "pcie_narrow"
	PCIeSlow          = "pcie_slow"
	GPUInUse          = "gpu_in_use"
	MemoryUnexplained = "memory_unexplained"
	FewerGPUs         = "fewer_gpus"
	PersistenceOff    = "persistence_off"

	DriverDiffers  = "driver_differs"
	CUDADiffers    = "cuda_differs"
	TorchDiffers   = "torch_differs"
	NCCLDiffers    = "nccl_differs"
	PythonDiffers  = "python_differs"
	TorchMissing   = "torch_missing"
	CommandMissing = "command_missing"
	ModuleDiffers  = "module_differs"
	NCCLSharedGPU  = "nccl_shared_gpu"

	Memlock       = "memlock"
	NoFile        = "nofile"
	SharedMemory  = "shared_memory"
	DiskFull      = "disk_full"
	CgroupMemory  = "cgroup_memory"
	CgroupPIDs    = "cgroup_pids"
	ClockOffset   = "clock_offset"
	HCADown       = "hca_down"
	HCASlow       = "hca_slow"
	HCAMissing    = "hca_missing"
	VerbsMissing  = "verbs_missing"
	PeerMemory    = "peer_memory"
	HiddenProcess = "hidden_processes"

	Unreachable      = "unreachable"
	SameSubnet       = "same_subnet"
	MTUDiffers       = "mtu_differs"
	MTUBlackHole     = "mtu_black_hole"
	NameLoopback     = "name_is_loopback"
	InterfaceMissing = "interface_missing"
	InterfaceUnfit   = "interface_unfit"

	CollectiveHang   = "collective_hang"
	CollectiveWrong  = "collective_wrong"
	CollectiveSlow   = "collective_slow"
	CollectiveFailed = "collective_failed"
	CollectiveRate   = "collective_rate"
	ComputeWrong     = "compute_wrong"
	ComputeSlow      = "compute_slow"
	PCIeUnderLoad    = "pcie_under_load"

	WrongGPU       = "wrong_gpu"
	ExtraGPU       = "extra_gpu"
	SharedGPU      = "shared_gpu"
	RankWithoutGPU = "rank_without_gpu"
	ChildOnGPU     = "child_on_gpu"
	ForeignProcess = "foreign_process"
	CrowdedGPU     = "crowded_gpu"
	CannotSee      = "cannot_see"
	NotMPSClient   = "not_mps_client"
	MPSUnreachable = "mps_unreachable"

	MemoryGrowth    = "memory_growth"
	MemoryImbalance = "memory_imbalance"
	Silent          = "silent"
	Straggler       = "straggler"
)

//go:embed codes.csv
var table string

// All are the codes, in the order of reading.
var All = read()

// read reads the table, whose form a test sees to.
func read() []Code {
	r := csv.NewReader(strings.NewReader(table))
	r.Comma, r.Comment, r.LazyQuotes = '|', '#', true
	rows, err := r.ReadAll()
	if err != nil {
		panic("codes: the table: " + err.Error())
	}
	var all []Code
	for _, row := range rows[1:] {
		all = append(all, Code{row[0], Severity(row[1]), Severity(row[2]), When(row[3]), row[5], row[4] != ""})
	}
	return all
}

// Find looks a code up.
func Find(name string) (Code, bool) {
	at := slices.IndexFunc(All, func(c Code) bool { return c.Name == name })
	if at < 0 {
		return Code{}, false
	}
	return All[at], true
}

// Names are the names of the codes that are looked for at these times; of all without any.
func Names(when ...When) []string {
	var names []string
	for _, c := range All {
		if len(when) == 0 || slices.Contains(when, c.When) {
			names = append(names, c.Name)
		}
	}
	return names
}
