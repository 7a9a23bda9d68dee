// Package codes lists the findings of checks by their codes, which job files, scripts and
// help refer to. It is a leaf, so that a job file can be checked against it by a package
// that knows nothing of hosts.
package codes

import "slices"

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

// All are the codes, in the order of reading: before the start GPUs, software, limits,
// network; after the start; and those of the plan's warnings.
var All = []Code{
	{Name: GPULost, Severity: Fail, When: Before, Meaning: "a GPU of the plan has fallen off the bus"},
	{Name: GPUNeedsReset, Severity: Fail, When: Before, Meaning: "a GPU of the plan is of no use before a reset"},
	{Name: GPUSilent, Severity: Fail, When: Before, Meaning: "a GPU of the plan does not answer properly"},
	{Name: GPUMissing, Severity: Fail, When: Before, Meaning: "a GPU or MIG device of the plan is not there any more"},
	{Name: GPURecovery, Severity: Fail, When: Before, Meaning: "the driver asks for a recovery action on a GPU"},
	{Name: ECCUncorrected, Severity: Fail, When: Before, Meaning: "uncorrected memory errors since the driver was loaded"},
	{Name: ECCHistory, Severity: Warn, When: Before, Meaning: "uncorrected memory errors in the GPU's life"},
	{Name: ECCModeDiffers, Severity: Warn, When: Before, Meaning: "ECC is off on a GPU and on for its sisters, or the reverse"},
	{Name: RemapFailed, Severity: Fail, When: Before, Meaning: "bad memory rows could not be remapped, or the spare ones are used up"},
	{Name: RemapPending, Severity: Warn, When: Before, Meaning: "memory rows are to be remapped at the next reset"},
	{Name: RetirePending, Severity: Warn, Worst: Fail, When: Before, Meaning: "memory pages are to be retired at the next reset"},
	{Name: RetiredMany, Severity: Warn, When: Before, Meaning: "many memory pages of a GPU are retired"},
	{Name: XidSinceBoot, Severity: Warn, When: Before, Meaning: "the driver has reported errors (Xid) of a GPU since the boot, as the kernel's log has them"},
	{Name: XidsUnknown, Severity: Info, When: Before, Meaning: "the kernel's log cannot be read, and so errors of GPUs since the boot are not known"},
	{Name: NVLinksDown, Severity: Fail, When: Before, Meaning: "a GPU has fewer NVLinks up than its sisters"},
	{Name: ComputeMode, Severity: Fail, When: Before, Meaning: "a GPU's compute mode keeps ranks out"},
	{Name: MIGMode, Severity: Fail, When: Before, Meaning: "MIG is not as the plan needs it, or is about to change"},
	{Name: FabricNotReady, Severity: Fail, When: Before, Meaning: "the NVSwitch fabric is not set up for a GPU"},
	{Name: FabricManager, Severity: Fail, When: Before, Meaning: "nvidia-fabricmanager does not run on a machine with NVSwitch, or is of another version than the driver"},
	{Name: Throttled, Severity: Warn, When: Before, Meaning: "a GPU is slowed down by heat or power"},
	{Name: PCIeNarrow, Severity: Warn, When: Before, Meaning: "a GPU's PCIe link has fewer lanes than it could, or than its sisters have"},
	{Name: PCIeSlow, Severity: Warn, When: Before, Meaning: "a GPU's PCIe link cannot be as fast as those of its sisters"},
	{Name: GPUInUse, Severity: Warn, Worst: Fail, When: Before, Meaning: "somebody else's processes hold memory of a GPU of the plan"},
	{Name: MemoryUnexplained, Severity: Warn, Worst: Fail, When: Before, Meaning: "memory of a GPU is in use that no process explains"},
	{Name: FewerGPUs, Severity: Warn, Worst: Fail, When: Before, Meaning: "a host has fewer GPUs than on its PCI bus, or than its sister hosts"},
	{Name: PersistenceOff, Severity: Info, Worst: Warn, When: Before, Meaning: "the driver is unloaded whenever nobody uses the GPU"},

	{Name: DriverDiffers, Severity: Warn, When: Before, Meaning: "hosts have different NVIDIA drivers"},
	{Name: CUDADiffers, Severity: Warn, When: Before, Meaning: "hosts have different CUDA libraries with the same driver"},
	{Name: TorchDiffers, Severity: Fail, When: Before, Meaning: "hosts have different versions of torch"},
	{Name: NCCLDiffers, Severity: Fail, When: Before, Meaning: "hosts have different versions of NCCL"},
	{Name: PythonDiffers, Severity: Warn, When: Before, Meaning: "hosts have different versions of Python"},
	{Name: TorchMissing, Severity: Info, Worst: Warn, When: Before, Meaning: "the command is Python's, and there is no torch"},
	{Name: CommandMissing, Severity: Fail, When: Before, Meaning: "the command's program is not there"},
	{Name: ModuleDiffers, Severity: Fail, When: Before, Meaning: "NVIDIA's kernel module and library are of different versions"},
	{Name: NCCLSharedGPU, Severity: Fail, When: Before, Meaning: "ranks share a GPU, or have MIG devices of one, which NCCL refuses"},

	{Name: Memlock, Severity: Warn, Worst: Fail, When: Before, Meaning: "processes may lock too little memory for InfiniBand"},
	{Name: NoFile, Severity: Warn, When: Before, Meaning: "processes may open too few files"},
	{Name: SharedMemory, Severity: Warn, Worst: Fail, When: Before, Meaning: "/dev/shm is missing, small or full"},
	{Name: DiskFull, Severity: Warn, Worst: Fail, When: Before, Meaning: "the file system of the home, the logs or the work folder is full, nearly so, or read-only"},
	{Name: CgroupMemory, Severity: Warn, When: Before, Meaning: "the cgroup's limit leaves ranks little memory"},
	{Name: CgroupPIDs, Severity: Warn, Worst: Fail, When: Before, Meaning: "the cgroup's limit leaves ranks few threads"},
	{Name: ClockOffset, Severity: Warn, When: Before, Meaning: "a host's clock differs from those of the others"},
	{Name: HCADown, Severity: Warn, Worst: Fail, When: Before, Meaning: "an InfiniBand or RoCE port is down that is up elsewhere"},
	{Name: HCASlow, Severity: Warn, When: Before, Meaning: "an InfiniBand or RoCE port is slower than its sisters"},
	{Name: HCAMissing, Severity: Warn, When: Before, Meaning: "a host has fewer InfiniBand or RoCE devices than its sisters, or lacks the one that is asked for"},
	{Name: VerbsMissing, Severity: Warn, When: Before, Meaning: "InfiniBand's device files are not there for programs"},
	{Name: PeerMemory, Severity: Warn, When: Before, Meaning: "InfiniBand cannot reach the memory of GPUs by itself"},
	{Name: HiddenProcess, Severity: Info, When: Before, Meaning: "a container hides who uses GPUs"},

	{Name: Unreachable, Severity: Fail, When: Before, Meaning: "a host cannot reach another where ranks are to meet"},
	{Name: SameSubnet, Severity: Warn, When: Before, Meaning: "two interfaces of a host are in one subnet"},
	{Name: MTUDiffers, Severity: Warn, When: Before, Meaning: "the interfaces by which hosts meet have different MTUs"},
	{Name: MTUBlackHole, Severity: Fail, When: Before, Meaning: "large packets between two hosts get lost, and nobody tells"},
	{Name: NameLoopback, Severity: Warn, When: Before, Meaning: "a host's own name leads back to itself, and JAX gives others the address that it finds by that name"},
	{Name: InterfaceMissing, Severity: Fail, When: Before, Meaning: "the network interface that is asked for is not there"},
	{Name: InterfaceUnfit, Severity: Warn, When: Before, Meaning: "the network interface that is asked for leads to no other host"},

	{Name: CollectiveHang, Severity: Fail, When: Asked, Meaning: "ranks do not get through an all-reduce in its time; the host or the pair of hosts is named"},
	{Name: CollectiveWrong, Severity: Fail, When: Asked, Meaning: "an all-reduce gives a wrong sum"},
	{Name: CollectiveSlow, Severity: Warn, When: Asked, Meaning: "an all-reduce with a host takes more than twice the median"},
	{Name: CollectiveFailed, Severity: Fail, When: Asked, Meaning: "ranks cannot measure: their torch is missing or cannot use CUDA, or the run that measures failed"},
	{Name: CollectiveRate, Severity: Info, When: Asked, Meaning: "what was measured"},
	{Name: ComputeWrong, Severity: Fail, When: Asked, Meaning: "a rank multiplies matrices wrongly, or not at all"},
	{Name: ComputeSlow, Severity: Warn, When: Asked, Meaning: "a rank multiplies matrices in more than twice the median time of its kind"},
	{Name: PCIeUnderLoad, Severity: Warn, When: Asked, Meaning: "a GPU's PCIe link is narrower or slower than it could be while it is used"},

	{Name: WrongGPU, Severity: Warn, When: After, Placement: true, Meaning: "a rank uses another GPU than the plan gave it"},
	{Name: ExtraGPU, Severity: Warn, When: After, Placement: true, Meaning: "a rank has opened a GPU of another rank, mostly GPU 0"},
	{Name: SharedGPU, Severity: Warn, When: After, Placement: true, Meaning: "ranks use one GPU that the plan gave to one of them"},
	{Name: RankWithoutGPU, Severity: Info, Worst: Warn, When: After, Meaning: "a rank has run for a while and has opened no GPU"},
	{Name: ChildOnGPU, Severity: Warn, When: After, Meaning: "a rank's child processes, such as data loaders, hold GPU memory of their own"},
	{Name: ForeignProcess, Severity: Warn, When: After, Meaning: "somebody else's process has come to a GPU of the run"},
	{Name: CrowdedGPU, Severity: Warn, When: After, Meaning: "more processes are on a GPU than the plan explains, where they cannot be told apart"},
	{Name: NotMPSClient, Severity: Warn, When: After, Meaning: "a rank that should be a client of MPS is none, or of another daemon"},
	{Name: MPSUnreachable, Severity: Warn, When: After, Meaning: "an MPS daemon of the run does not answer, so that new processes run without MPS"},
	{Name: CannotSee, Severity: Info, Worst: Warn, When: After, Meaning: "whose processes are on GPUs cannot be seen"},
	{Name: MemoryGrowth, Severity: Warn, When: After, Meaning: "memory that a rank uses has risen steadily for an hour or more"},
	{Name: MemoryImbalance, Severity: Warn, When: After, Meaning: "a rank has held far more memory of its GPU than the others"},
	{Name: Silent, Severity: Warn, When: After, Meaning: "nothing has moved in any rank for the silence of the hang block"},
	{Name: Straggler, Severity: Warn, When: After, Meaning: "a rank keeps the others waiting"},

	{Name: "busy_device", Severity: Warn, When: Planning, Meaning: "a GPU that the job file names is busy; see gpu_in_use"},
	{Name: "device_order", Severity: Warn, When: Planning, Meaning: "numbers of GPUs may mean different cards to CUDA"},
	{Name: "group_size", Severity: Warn, When: Planning, Meaning: "ranks cannot be parted into groups of that size"},
	{Name: "logout_kills", Severity: Warn, When: Planning, Meaning: "a logout would kill the run"},
	{Name: "logout_removes_shm", Severity: Warn, When: Planning, Meaning: "a logout would delete the run's /dev/shm files"},
	{Name: "memory_does_not_fit", Severity: Warn, When: Planning, Meaning: "ranks are estimated to need more memory than their GPUs, or with cpu_offload their hosts, have free"},
	{Name: "memory_layout", Severity: Warn, When: Planning, Meaning: "the groups of ranks cannot be what the memory block's model is split over"},
	{Name: "not_bound", Severity: Warn, When: Planning, Meaning: "ranks cannot be bound to CPUs near their GPUs"},
	{Name: "slow_group", Severity: Warn, When: Planning, Meaning: "a group of ranks is not on fast links"},
	{Name: "visibility", Severity: Warn, When: Planning, Meaning: "ranks may touch each other's GPUs"},

	{Name: "mps_found", Severity: Warn, When: Planning, Meaning: "ranks become clients of an MPS daemon that nobody asked for, or of none though the host speaks of one"},
	{Name: "mps_unknown", Severity: Warn, When: Planning, Meaning: "which GPUs another user's MPS daemon serves cannot be seen"},
	{Name: "mps_daemons", Severity: Warn, When: Planning, Meaning: "NCCL is to join GPUs that have an MPS daemon each"},
	{Name: "mps_group", Severity: Warn, When: Planning, Meaning: "a group of ranks has two on one GPU"},
	{Name: "mps_memory", Severity: Warn, When: Planning, Meaning: "the memory limits of a GPU's ranks make more than it has"},
	{Name: "mps_old", Severity: Warn, When: Planning, Meaning: "a GPU is from before Volta, where MPS protects clients from each other less"},
	{Name: "mig_unlike", Severity: Warn, When: Planning, Meaning: "ranks that work together have MIG devices, or GPUs, of different sizes"},
	{Name: "time_slicing", Severity: Warn, When: Planning, Meaning: "ranks take turns on a GPU, without MPS"},

	{Name: "nccl_found", Severity: Warn, When: Planning, Meaning: "the host sets a variable of NCCL's that the job file does not"},
	{Name: "nccl_unknown", Severity: Warn, When: Planning, Meaning: "no NCCL reads a variable of this name"},
	{Name: "nccl_version", Severity: Warn, When: Planning, Meaning: "the NCCL or torch that was found does not know a variable"},
	{Name: "nccl_deprecated", Severity: Warn, When: Planning, Meaning: "a variable of NCCL's has another name now"},
	{Name: "nccl_number", Severity: Warn, When: Planning, Meaning: "NCCL reads a number, and not what is written"},
	{Name: "nccl_range", Severity: Warn, When: Planning, Meaning: "a number is beyond what NCCL takes"},
	{Name: "nccl_word", Severity: Warn, When: Planning, Meaning: "NCCL does not know a word, or not in this case"},
	{Name: "nccl_level_number", Severity: Warn, When: Planning, Meaning: "a distance is written as a number"},
	{Name: "nccl_list", Severity: Warn, When: Planning, Meaning: "NCCL does not split a list as it looks"},
	{Name: "nccl_prefix", Severity: Warn, When: Planning, Meaning: "a name takes interfaces or devices that begin with it too"},
	{Name: "nccl_algo", Severity: Warn, When: Planning, Meaning: "functions are left without an algorithm"},
	{Name: "nccl_mig", Severity: Warn, When: Planning, Meaning: "ranks are on MIG devices, which the NCCL or the driver there does not support"},
	{Name: "nccl_ll128", Severity: Warn, When: Planning, Meaning: "a setting may corrupt data"},
	{Name: "nccl_file", Severity: Warn, When: Planning, Meaning: "a file of NCCL's is not where it seems"},
	{Name: "nccl_p2p_off", Severity: Warn, When: Planning, Meaning: "GPUs that could reach each other directly will not"},
	{Name: "nccl_slow_network", Severity: Warn, When: Planning, Meaning: "a faster network is left aside"},
	{Name: "nccl_interface", Severity: Warn, When: Planning, Meaning: "an interface or device is not there, or leads nowhere"},
	{Name: "nccl_no_effect", Severity: Warn, When: Planning, Meaning: "a setting of NCCL's does nothing as things are"},
	{Name: "allocator_malformed", Severity: Warn, When: Planning, Meaning: "the allocator's variable is no list of settings"},
	{Name: "allocator_unknown_key", Severity: Warn, When: Planning, Meaning: "no torch has such a setting of the allocator"},
	{Name: "allocator_version", Severity: Warn, When: Planning, Meaning: "the torch that was found does not know a setting of the allocator"},
	{Name: "allocator_value", Severity: Warn, When: Planning, Meaning: "a setting of the allocator is out of range, or of another form"},
	{Name: "allocator_pair", Severity: Warn, When: Planning, Meaning: "one setting of the allocator makes another idle"},
	{Name: "allocator_names", Severity: Warn, When: Planning, Meaning: "the allocator's settings stand in a variable that is not read"},
	{Name: "allocator_overridden", Severity: Warn, When: Planning, Meaning: "somebody else's setting of the allocator is in force"},
	{Name: "allocator_torch_unknown", Severity: Warn, When: Planning, Meaning: "which torch ranks use is not known"},
	{Name: "allocator_no_fraction", Severity: Warn, When: Planning, Meaning: "the torch that was found takes no memory_fraction from outside"},
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
