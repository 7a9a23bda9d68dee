package mps

import "fmt"

// Names of the programs, as processes bear them.
const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"
)

// What the front end and the daemon say.
const (
	noDaemon       = "Cannot find MPS control daemon process"
	notAllowed     = "Cannot authenticate or connect to MPS control daemon process"
	alreadyRunning = "An instance of this daemon is already running"
	cannotAccess   = "Cannot access CUDA_MPS_PIPE_DIRECTORY=%s"
	noLogs         = "Warning: Failed writing log files to directory [%s]. No logs will be available."
	badPercentage  = "Invalid percentage, expected between (0.0, 100.0]"
	badPriority    = "Invalid priority value - must be 0 or 1!"
	badOrdinal     = "Invalid device ordinal!"
	noLimit        = "No default pinned memory limit set for the device!"
	serverNotFound = "Server %d not found"
	serverBusy     = "Server %d is <busy>"
	activeThreads  = "Server %d has %d active worker threads. Server will not shutdown."
	badProcess     = "Invalid process %d!"
	unknownCommand = "Unknown command %q"
	insufficient   = "Insufficient privileges for UID %d. Only the root user may %s"
	// The real words for these are not publicly known.
	badLimit    = "Invalid pinned memory limit!"
	badArgument = "Invalid argument"
)

// States of a server (get_server_status).
const (
	initializing = "INITIALIZING"
	active       = "ACTIVE"
	faulty       = "FAULT"
)

// Numbers of cudaError_t, from the header driver_types.h.
const (
	errIllegalAddress   = 700
	errConnectionFailed = 805
	errRPCFailure       = 806
	errServerNotReady   = 807
	errMaxClients       = 808
	errMaxConnections   = 809
	errTerminated       = 810
)

// Error is a cudaError_t as PyTorch words it.
type Error int

func (e Error) Error() string {
	words := map[Error]string{
		errIllegalAddress:   "an illegal memory access was encountered",
		errConnectionFailed: "MPS client failed to connect to the MPS control daemon or the MPS server",
		errRPCFailure:       "the remote procedural call between the MPS server and the MPS client failed",
		errServerNotReady:   "MPS server is not ready to accept new MPS client requests",
		errMaxClients:       "the hardware resources required to create MPS client have been exhausted",
		errMaxConnections:   "the hardware resources required to support device connections have been exhausted",
		errTerminated:       "the MPS client has been terminated by the server",
	}[e]
	if words == "" {
		words = fmt.Sprintf("unrecognized error code %d", int(e))
	}
	return "torch.AcceleratorError: CUDA error: " + words
}

// ErrIllegalAddress is what a process gets whose GPU, or whose neighbour's, has met an
// illegal address.
const ErrIllegalAddress = Error(errIllegalAddress)
