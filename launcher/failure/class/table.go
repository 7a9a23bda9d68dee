package class

// Names of classes.
const (
	OOMCapacity      = "oom.capacity"
	OOMFragmentation = "oom.fragmentation"
	OOMForeign       = "oom.foreign_process"
	OOMImbalance     = "oom.imbalance"
	OOMMPSLimit      = "oom.mps_limit"
	OOMHost          = "oom.host"
	OOMShm           = "oom.shm"
	OOMUnknown       = "oom.unknown"

	NCCLTimeout = "nccl.timeout"
	NCCLDesync  = "nccl.desync"
	NCCLRemote  = "nccl.remote"
	NCCLSystem  = "nccl.system"
	GlooTimeout = "gloo.timeout"
	GlooRemote  = "gloo.remote"
	PeerLost    = "peer.lost"

	GPUECC      = "gpu.ecc"
	GPUNVLink   = "gpu.nvlink"
	GPULost     = "gpu.lost"
	GPUGSP      = "gpu.gsp"
	GPUXid      = "gpu.xid"
	GPUAppFault = "gpu.app_fault"
	GPUBusy     = "gpu.busy"
	GPUInit     = "gpu.init"

	MPSLost  = "mps.lost"
	MPSFault = "mps.fault"
	MPSPeer  = "mps.peer"
	MPSFull  = "mps.full"

	DuplicateGPU      = "duplicate_gpu"
	BadOrdinal        = "bad_ordinal"
	PortInUse         = "port_in_use"
	RendezvousTimeout = "rendezvous_timeout"

	CrashSegv    = "crash.segv"
	CrashBus     = "crash.bus"
	CrashAbort   = "crash.abort"
	CrashIllegal = "crash.illegal"
	CrashFPE     = "crash.fpe"

	UserError = "user_error"
	Exit      = "exit"
	Start     = "start"
	DiskFull  = "disk_full"
	Storage   = "storage"
	Network   = "network"
	TimeLimit = "time_limit"
	Hang      = "hang"
	EarlyExit = "early_exit"

	HostLost      = "host.lost"
	AgentLost     = "agent.lost"
	KilledUnknown = "killed.unknown"
	Stopped       = "stopped"
	Refused       = "refused"
	Internal      = "internal"
	None          = "none"
)

// Names that reports have beside these, and no rule of a job file.
const (
	Taken    = "taken"     // another run took a device before this one could
	WrongGPU = "wrong_gpu" // a rank was on another GPU than planned, and the job file stops the run for that
	Port     = "port"      // MASTER_PORT was taken by another program
)

// Advice that several classes share. What can be done about GPU memory is in the order of
// least cost: a setting, then time, then code.
var (
	lessMemory = []string{
		"a smaller micro-batch with gradient accumulation: the same result, a little slower",
		"activation checkpointing: about 70 % less memory for activations, about 30 % more compute",
		"bf16 in place of fp32, and a fused or 8-bit optimizer",
		"sharding (FSDP, ZeRO) over more GPUs: plain data parallel keeps everything on each of them",
	}
	badHost = []string{
		"leave the host out of hosts { } until its GPU was reset or replaced",
		"nvidia-smi -q and the kernel log (dmesg) on that host tell more to whoever repairs it",
	}
	otherRank = []string{"the rank that failed first has the reason; this one only noticed"}
	crashed   = []string{
		"env = { PYTHONFAULTHANDLER = \"1\" } prints where each thread was",
		"check that compiled extensions were built for the installed torch and CUDA",
	}
)

// Classes are all classes. What an owner cannot change is not advised.
var Classes = []Class{
	{Name: OOMFragmentation, Meaning: "the allocator's pool holds enough free memory, but not in one piece", Owner: Program, Restart: WithConfig,
		Advice: append([]string{"allocator { expandable_segments = true } (torch 2.1 and later)", "allocator { max_split_size = \"128MiB\" } where that cannot be used",
			"fixed shapes: pad batches to a few lengths"}, lessMemory[:1]...)},
	{Name: OOMCapacity, Meaning: "the program wants more memory than this GPU can give, whoever else is on it", Owner: Program, Restart: No, Advice: lessMemory},
	{Name: OOMForeign, Meaning: "another process holds the GPU memory that is missing", Owner: Environment, Restart: AfterFree,
		Advice: []string{"end that process, or wait for it: restart { on \"oom.foreign_process\" { wait_memory = \"10m\" } }", "choose other GPUs: ranks { devices = [...] }"}},
	{Name: OOMImbalance, Meaning: "one GPU is full while the others of the plan are not", Owner: Program, Restart: No,
		Advice: []string{"look for tensors made on cuda:0 in place of the rank's own device (torch.cuda.set_device(LOCAL_RANK), map_location of torch.load)",
			"ranks { visibility = \"rank\" } shows each rank its own GPU only", "cut pipeline stages by measured peaks of memory, not by numbers of layers"}},
	{Name: OOMMPSLimit, Meaning: "the rank's share under MPS (pinned_memory_limit) is used up, not the GPU", Owner: Program, Restart: WithConfig,
		Advice: []string{"a larger mps { pinned_memory_limit }, or fewer ranks_per_gpu", "sizes that are a fraction of the card's total overshoot: compute them from the limit"}},
	{Name: OOMHost, Meaning: "host memory ran out, or the cgroup's limit was reached", Owner: Environment, Restart: No,
		Advice: []string{"fewer or smaller data-loader workers (num_workers, prefetch_factor)", "a larger memory limit of the container or Slurm job", "load checkpoints with mmap=True, one rank after the other", "fewer ranks on the host"}},
	{Name: OOMShm, Meaning: "/dev/shm is full", Owner: Environment, Restart: WithConfig,
		Advice: []string{"a larger /dev/shm: --shm-size (docker), an emptyDir with medium Memory (Kubernetes), mount -o remount,size=", "fewer data-loader workers, a smaller prefetch_factor",
			"remove files that dead programs have left in /dev/shm"}},
	{Name: OOMUnknown, Meaning: "GPU memory could not be had, and nothing says why", Owner: Environment, Restart: Maybe,
		Advice: []string{"look who is on the GPU and how healthy it is: muster check", "a first allocation that fails is rarely the model's"}},

	{Name: NCCLTimeout, Meaning: "a collective did not end in time (NCCL's watchdog)", Owner: Environment, Restart: Yes, Symptom: true, Silent: true,
		Advice: []string{"look at the ranks that did not report, and what they did last", "nccl { debug = \"INFO\" } shows interfaces and paths at the start", "a longer timeout in init_process_group where one rank has long work of its own (checkpoints, evaluation)"}},
	{Name: NCCLDesync, Meaning: "ranks were in different collectives", Owner: Program, Restart: No, Silent: true,
		Advice: []string{"a branch of the program depends on the rank: every rank must call the same collectives in the same order", "TORCH_DISTRIBUTED_DEBUG=DETAIL names the first difference"}},
	{Name: NCCLRemote, Meaning: "another rank's connection broke (NCCL)", Owner: Environment, Restart: Yes, Consequence: true, Advice: otherRank},
	{Name: NCCLSystem, Meaning: "a socket, InfiniBand or driver call failed inside NCCL", Owner: Environment, Restart: Maybe,
		Advice: []string{"check NCCL_SOCKET_IFNAME, firewalls between the hosts and ulimit -l", "nccl { debug = \"INFO\" } names the call"}},
	{Name: GlooTimeout, Meaning: "a collective did not end in time (gloo)", Owner: Environment, Restart: Yes, Symptom: true, Silent: true, Advice: []string{"look at what the other ranks did last"}},
	{Name: GlooRemote, Meaning: "another rank's connection broke (gloo)", Owner: Environment, Restart: Yes, Consequence: true, Advice: otherRank},
	{Name: PeerLost, Meaning: "the other end of a connection went away", Owner: Environment, Restart: Yes, Consequence: true, Advice: otherRank},

	{Name: GPULost, Meaning: "the GPU does not answer any more", Owner: Host, Restart: OtherHost, Advice: append([]string{"the host needs a reboot or a power cycle"}, badHost...)},
	{Name: GPUECC, Meaning: "GPU memory had an error that could not be corrected", Owner: Host, Restart: OtherHost, Advice: badHost},
	{Name: GPUNVLink, Meaning: "a link between GPUs failed", Owner: Host, Restart: OtherHost, Advice: badHost},
	{Name: GPUGSP, Meaning: "the GPU's own firmware hangs", Owner: Host, Restart: OtherHost, Advice: badHost},
	{Name: GPUXid, Meaning: "the driver reported another error of the GPU", Owner: Host, Restart: Maybe, Advice: badHost},
	{Name: GPUAppFault, Meaning: "a kernel of the program accessed memory that is not its own", Owner: Program, Restart: No,
		Advice: []string{"env = { CUDA_LAUNCH_BLOCKING = \"1\" } shows the call; compute-sanitizer the kernel", "the same GPU with other programs as well: suspect the hardware"}},
	{Name: GPUBusy, Meaning: "the GPU refused the program", Owner: Environment, Restart: AfterFree,
		Advice: []string{"compute mode exclusive or prohibited, MIG without instances, or MPS without its server: nvidia-smi -q -d COMPUTE", "end what an earlier run has left on the GPU"}},
	{Name: GPUInit, Meaning: "the driver or its library cannot be used here", Owner: Host, Restart: OtherHost,
		Advice: []string{"nvidia-smi on the host says why; on HGX machines nvidia-fabricmanager must run", "check the driver's version against torch's CUDA"}},

	{Name: MPSLost, Meaning: "the MPS daemon or server of a GPU has ended, and its clients with it", Owner: Environment, Restart: Yes,
		Advice: []string{"its log says more: control.log and server.log", "ask who has ended it: dmesg tells whether the kernel did for want of memory"}},
	{Name: MPSFault, Meaning: "a fatal GPU fault of one client of MPS ended all that shared the GPU", Owner: Program, Restart: Maybe, Symptom: true,
		Advice: []string{"env = { CUDA_LAUNCH_BLOCKING = \"1\" } shows the call; run the rank alone (ranks_per_gpu = 1) to see whose fault it is"}},
	{Name: MPSPeer, Meaning: "the MPS server ended the rank's contexts, or could not be reached any more", Owner: Environment, Restart: Yes, Consequence: true,
		Advice: []string{"look at the ranks on the same GPU, and the logs of its MPS daemon"}},
	{Name: MPSFull, Meaning: "the MPS server takes no more clients", Owner: Program, Restart: No,
		Advice: []string{"fewer ranks_per_gpu; contexts count, not processes: data loaders should not touch CUDA", "a smaller CUDA_DEVICE_MAX_CONNECTIONS leaves room for more clients"}},

	{Name: DuplicateGPU, Meaning: "two ranks of one communicator use the same GPU", Owner: Program, Restart: No,
		Advice: []string{"torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before anything uses CUDA", "no more ranks than GPUs: ranks { per_host = \"gpu\" }"}},
	{Name: BadOrdinal, Meaning: "the program asked for a GPU that it cannot see", Owner: Program, Restart: No,
		Advice: []string{"use LOCAL_RANK, not RANK, as the device", "ranks { visibility = \"host\" } shows all GPUs of the plan to each rank"}},
	{Name: PortInUse, Meaning: "a port is taken by another program", Owner: Environment, Restart: Yes,
		Advice: []string{"a program's own port: take a free one; MASTER_PORT muster chooses anew", "ports = \"20000-29999\" keeps muster out of others' way"}},
	{Name: RendezvousTimeout, Meaning: "ranks did not find each other in time", Owner: Environment, Restart: Maybe, Symptom: true, Silent: true,
		Advice: []string{"look in the logs of the ranks that are missing", "firewalls between the hosts: muster check"}},

	{Name: UserError, Meaning: "the program itself ended with an error", Owner: Program, Restart: No, Advice: []string{"the last lines of the rank say what and where"}},
	{Name: CrashSegv, Meaning: "the program touched memory that is not there (SIGSEGV)", Owner: Program, Restart: Maybe, Advice: crashed},
	{Name: CrashBus, Meaning: "memory behind an address was not there (SIGBUS)", Owner: Program, Restart: Maybe,
		Advice: append([]string{"a file that was mapped became shorter, or /dev/shm was full"}, crashed...)},
	{Name: CrashAbort, Meaning: "the program ended itself by abort()", Owner: Program, Restart: Maybe, Advice: crashed},
	{Name: CrashIllegal, Meaning: "the processor does not know an instruction (SIGILL)", Owner: Program, Restart: No, Advice: []string{"packages were built for another processor"}},
	{Name: CrashFPE, Meaning: "an integer was divided by zero (SIGFPE)", Owner: Program, Restart: No, Advice: crashed},
	{Name: Exit, Meaning: "a status other than 0, and no error that is known", Owner: Program, Restart: Maybe, Advice: []string{"have the program say why it ends"}},
	{Name: Start, Meaning: "the program could not be started", Owner: Program, Restart: No, Advice: []string{"check command and workdir, and what setup does"}},

	{Name: DiskFull, Meaning: "a file system or a quota is full", Owner: Environment, Restart: No,
		Advice: []string{"keep fewer checkpoints, or write them elsewhere", "df -h and df -i: inodes run out too"}},
	{Name: Storage, Meaning: "a file system failed", Owner: Environment, Restart: Maybe, Advice: []string{"stat and dmesg on that host; NFS that was mounted anew needs open files opened anew"}},
	{Name: Network, Meaning: "something outside of the run was not reached", Owner: Environment, Restart: Yes,
		Advice: []string{"download models and data before the run (HF_HUB_OFFLINE=1)"}},
	{Name: TimeLimit, Meaning: "a time limit ended it", Owner: Nobody, Restart: Never, Advice: []string{"a longer limit, or checkpoints that the next run goes on from"}},
	{Name: Hang, Meaning: "nothing was heard for too long", Owner: Program, Restart: Yes, Symptom: true, Silent: true, Advice: []string{"have the next one show where ranks are: py-spy where the workers find it (pip install py-spy), or faulthandler.register(signal.SIGUSR1, all_threads=True) in the program"}},
	{Name: EarlyExit, Meaning: "some ranks ended well while others ran on", Owner: Program, Restart: No, Silent: true,
		Advice: []string{"uneven data: every rank needs the same number of steps (drop_last, join())"}},

	{Name: HostLost, Meaning: "a host is not heard any more", Owner: Host, Restart: OtherHost, Advice: []string{"look whether the host runs, and at the network to it"}},
	{Name: AgentLost, Meaning: "muster's agent on a host died or was cut off", Owner: Host, Restart: OtherHost, Advice: []string{"the kernel log of that host may name who killed it, or the disk or driver that it waits for"}},
	{Name: KilledUnknown, Meaning: "a signal that muster did not send", Owner: Environment, Restart: Maybe,
		Advice: []string{"dmesg on the host tells whether the kernel did it for want of memory", "ask the scheduler: preemption and time limits kill too"}},
	{Name: Stopped, Meaning: "muster or the user ended it", Owner: Nobody, Restart: Never, Consequence: true},
	{Name: Refused, Meaning: "no worker was started", Owner: Nobody, Restart: Never},
	{Name: Internal, Meaning: "a fault of muster itself", Owner: Nobody, Restart: Never},
	{Name: None, Meaning: "nothing failed", Owner: Nobody, Restart: Never},
}
