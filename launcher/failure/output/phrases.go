package output

import (
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// Kind is how much a phrase says of the cause.
type Kind int

const (
	Cause   Kind = iota // what went wrong
	Symptom             // something did not happen in time
	Effect              // somebody else's end was noticed
	Vague               // that something went wrong, and not what
)

// phrase is a text of a program or library that says what went wrong.
type phrase struct {
	class string
	Kind  Kind
	any   []string // one of these stands in the text, as it is
	// form must fit what begins there; its groups are the reader's.
	form *pattern.Pattern
	// caught is set where programs go on after it, having said it.
	caught  bool
	restart class.Restart // where it is not the class's own
	sure    string        // the confidence where it is not Certain
	says    string        // the verdict's message; "" for what read makes of it, or the class's meaning
	read    func(h *Hit, v voice, m []string)
}

// refusedMemory is what is known of a program that asked for memory and did not get it.
const refusedMemory = "the program was refused host memory"

// reach is how far a sentence goes on from the phrase.
const reach = 2048

// phrases are all that are known. The order matters only for phrases in one place: then
// the first counts.
var phrases = []phrase{
	// GPU memory.
	{class: class.OOMUnknown, any: evidence.AllocatorFull, caught: true, read: readOOM},
	{class: class.OOMCapacity, any: evidence.ArenaFull, caught: true, read: readOOM},
	{class: class.OOMCapacity, any: []string{"Cuda failure"}, form: pattern.New(`^Cuda failure (?:2\b|'out of memory'|[0-9]+ 'out of memory')`), sure: verdict.Likely,
		says: "NCCL found no GPU memory for its buffers, which lie outside the framework's pool: shrink the pool's share, nccl { buffer_size } or the number of channels rather than the batch"},
	{class: class.OOMUnknown, any: evidence.DriverFull,
		restart: class.OtherHost, sure: verdict.Likely, caught: true, says: "the driver itself refused GPU memory, without numbers: somebody else is on the GPU, or the GPU is not well; it is rarely the model"},
	{class: class.OOMCapacity, any: evidence.LibraryFull, sure: verdict.Likely, read: readLibraryAlloc},

	// GPUs.
	{class: class.GPUECC, any: evidence.ECCError, says: "the GPU's memory had an error that could not be corrected"},
	{class: class.GPULost, any: evidence.DeviceLost, says: "the GPU does not answer any more"},
	{class: class.UserError, any: []string{"device-side assert triggered"}, says: "a check within a kernel of the program failed: most often an index or label out of range"},
	{class: class.GPUAppFault, any: evidence.DeviceFault, says: "a kernel of the program accessed memory that is not its own"},
	{class: class.GPUBusy, any: []string{"CUDA-capable device(s) is/are busy or unavailable"}, says: "the GPU refused the program: compute mode, MIG without an instance, or MPS without its server"},
	{class: class.MPSPeer, Kind: Effect, any: []string{"call between the MPS server and the MPS client failed", "MPS client has been terminated by the server", "MPS server is not ready to accept new MPS client requests",
		"cudaErrorMpsRpcFailure", "cudaErrorMpsClientTerminated", "cudaErrorMpsServerNotReady", "CUDA_ERROR_MPS_RPC_FAILURE", "CUDA_ERROR_MPS_CLIENT_TERMINATED", "CUDA_ERROR_MPS_SERVER_NOT_READY"}},
	{class: class.MPSLost, any: []string{"MPS client failed to connect to the MPS control daemon or the MPS server", "cudaErrorMpsConnectionFailed", "CUDA_ERROR_MPS_CONNECTION_FAILED"}, sure: verdict.Likely,
		says: "the program found an MPS daemon and could not become its client"},
	{class: class.MPSFull, any: []string{"hardware resources required to create MPS client have been exhausted", "hardware resources required to support device connections have been exhausted", "hardware resources required to device connections have been exhausted",
		"cudaErrorMpsMaxClientsReached", "cudaErrorMpsMaxConnectionsReached", "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"}, says: "the MPS server takes no more clients: contexts count, not processes"},
	{class: class.BadOrdinal, any: []string{"invalid device ordinal"}, says: "the program asked for a GPU that it cannot see"},
	{class: class.GPUInit, any: []string{"no CUDA-capable device is detected", "system not yet initialized", "CUDA driver version is insufficient", "Found no NVIDIA driver on your system",
		"CUDA driver initialization failed", "No CUDA GPUs are available", "forward compatibility was attempted on non supported HW", "Driver/library version mismatch"}, sure: verdict.Likely,
		says: "the program found no GPU that it could use"},
	{class: class.DuplicateGPU, any: []string{"Duplicate GPU detected"}, form: pattern.New(`^Duplicate GPU detected ?: rank ([0-9]+) and rank ([0-9]+)|^Duplicate GPU detected`), read: readRank,
		says: "two ranks of one communicator use the same GPU"},
	{class: class.DuplicateGPU, any: []string{"Multiple Ranks are using the same GPU/Partition"}, // since NCCL 2.30
		says: "two ranks of one communicator use the same GPU, or MIG devices of one"},

	// Memory of the host. What is said of a data loader's own processes comes of SIGKILL.
	{class: class.OOMShm, any: []string{"insufficient shared memory (shm)", "workers are out of shared memory", "is killed by signal: Bus error"}, says: "/dev/shm is full: data-loader processes found no room for their batches"},
	{class: class.OOMShm, any: []string{"unable to write to file </torch_", "Error while creating shared memory segment /dev/shm/", "failed to extend /dev/shm/"}, says: "/dev/shm is full"},
	{class: class.OOMShm, any: []string{"No space left on device"}, form: pattern.New(`^No space left on device(?: \(28\))?:? ?['"]?(?:/dev/shm/|/torch_|/psm_)`), says: "/dev/shm is full"},
	{class: class.OOMHost, any: []string{"is killed by signal: Killed", "exited unexpectedly with signal 9"}, form: pattern.New(`^is killed by signal: Killed|^exited`), sure: verdict.Likely, restart: class.Maybe,
		says: "a data-loader process was killed, most likely for want of host memory"},
	{class: class.OOMHost, any: []string{"DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"}, form: pattern.New(`tried to allocate ([0-9]+) bytes`), read: readCPUAlloc,
		says: refusedMemory},
	{class: class.OOMHost, any: []string{"unable to mmap"}, form: pattern.New(`^unable to mmap .{0,500}?: Cannot allocate memory`), sure: verdict.Likely, read: readMapping},
	{class: class.OOMHost, any: []string{"std::bad_alloc", "[Errno 12] Cannot allocate memory"}, sure: verdict.Likely, says: refusedMemory},
	{class: class.CrashSegv, any: []string{"is killed by signal: Segmentation fault"}, says: "a data-loader process crashed (SIGSEGV)"},

	// NCCL.
	{class: class.NCCLTimeout, Kind: Symptom, any: []string{"Watchdog caught collective operation timeout"}, read: readWatchdog},
	{class: class.NCCLTimeout, Kind: Symptom, any: []string{"Exception (either an error or timeout) detected by watchdog", "watchdog got stuck for"}, sure: verdict.Likely},
	{class: class.NCCLDesync, any: []string{"Detected mismatch between collectives on ranks"}, says: "ranks were in different collectives"},
	{class: class.NCCLRemote, Kind: Effect, any: []string{"Proxy Service"}, form: pattern.New(`^Proxy Service [0-9]+\] Failed to execute operation \w+ from rank ([0-9]+), retcode 6`), read: readRank},
	{class: class.NCCLRemote, Kind: Effect, any: []string{"remote process exited or there was a network error", "ncclRemoteError", "Connection closed by remote peer",
		"NCCL communicator was aborted"}},
	{class: class.NCCLRemote, Kind: Effect, any: []string{"Call to recv from", "Call to send to"}, form: pattern.New(`^Call to \w+ \w+ \S{1,100} failed : (?:Connection reset by peer|Broken pipe|Connection timed out)`)},
	{class: class.NCCLSystem, any: []string{"NCCL WARN Connect to", "NCCL WARN Net : Connect to", "socketStartConnect: Connect to"}, form: pattern.New(`onnect to (\S{1,100}) failed : (Connection refused|No route to host|Network is unreachable|Connection timed out)`),
		restart: class.OtherHost, read: readConnect},
	{class: class.NCCLSystem, any: []string{"Cuda failure"}, form: pattern.New(`^Cuda failure (?:([0-9]+) )?'([^']{1,100})'`), read: readCudaFailure},
	{class: class.NCCLSystem, any: []string{"NET/IB : Got completion from peer", "NET/IB : Got async event", "Call to ibv_"}, sure: verdict.Likely, says: "InfiniBand failed below NCCL"},
	{class: class.NCCLSystem, Kind: Vague, any: []string{"unhandled system error", "ncclSystemError", "unhandled cuda error", "ncclUnhandledCudaError", "ncclInternalError",
		"ncclInvalidUsage", "NCCL error in:", "Some NCCL operations have failed or timed out"}, sure: verdict.Likely},

	// gloo, and PyTorch's store.
	{class: class.GlooTimeout, Kind: Symptom, any: []string{"Timed out waiting"}, form: pattern.New(`^Timed out waiting ([0-9]+)ms for (?:recv|send) operation`), read: readMilliseconds},
	{class: class.GlooRemote, Kind: Effect, any: []string{"/gloo/transport/"}, form: pattern.New(`(?i)^.{0,200}?(?:connection closed by peer|connection reset by peer|broken pipe|read error|writev|application timeout caused pair closure)`)},
	{class: class.PeerLost, Kind: Effect, any: []string{"failed to recv, got 0 bytes", "recvValue failed on SocketImpl", "sendBytes failed on SocketImpl", "recvBytes failed on SocketImpl", "TCPStore server has shut down",
		"DistNetworkError: Connection reset by peer", "DistNetworkError: Broken pipe"}},
	{class: class.RendezvousTimeout, Kind: Symptom, any: []string{"seconds waiting for clients."}, form: pattern.New(`^seconds waiting for clients\. ([0-9]+)/([0-9]+) clients joined`), read: readJoined},
	{class: class.RendezvousTimeout, Kind: Symptom, any: []string{"is setting up NCCL communicator and retrieving ncclUniqueId"}, form: pattern.New(`(?:Socket Timeout|wait timeout|failed|timed out)`), read: readSettingUp},
	{class: class.RendezvousTimeout, Kind: Symptom, any: []string{"The client socket has timed out after", "client socket has failed to connect to any network address", "Timed out initializing process group",
		"RendezvousTimeoutError", "gloo connectFullMesh failed", "wait timeout after"}},

	// Ports, disks and time.
	{class: class.PortInUse, any: []string{"The server socket has failed to listen on any local network address"}, read: readPort, caught: true},
	{class: class.PortInUse, any: []string{"[Errno 98] Address already in use", "[Errno 98] error while attempting to bind", "EADDRINUSE"}, read: readPort, caught: true},
	{class: class.DiskFull, any: []string{"No space left on device", "Disk quota exceeded", "disk quota exceeded"}, caught: true, says: "a file could not be written: the file system or the quota is full"},
	{class: class.Storage, any: []string{"[Errno 5] Input/output error", "[Errno 116] Stale file handle", "[Errno 107] Transport endpoint is not connected"}, caught: true, says: "a file system failed under the program"},
	{class: class.TimeLimit, any: []string{"DUE TO TIME LIMIT"}, says: "the scheduler's time limit ended it"},
	{class: class.TimeLimit, any: []string{"exitcode: 124", "exitcode  : 124"}, form: pattern.New(`^exitcode *: 124\b(?:\) local_rank: ([0-9]+))?`), read: readRank, says: "a time limit ended it (status 124 is that of timeout(1))"},
	{class: class.KilledUnknown, any: []string{"exitcode  : -9", "exitcode: -9"}, sure: verdict.Likely, read: readNestedKill},
}

// wrongIndex are words above a failing library call that make it a consequence of a wrong
// index: a check within a kernel leaves the device unusable for whatever comes next.
var wrongIndex = pattern.New(`device-side assert|indexSelect|srcIndex < srcSelectDimSize|(?i:out-of-range index|index out of (?:range|bounds))`)
