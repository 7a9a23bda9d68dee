// Package mps knows CUDA's Multi-Process Service: the variables by which processes find its daemon, the words that
// nvidia-cuda-mps-control takes and gives, the lines of its logs, and what it cannot do by GPU and driver. It starts
// nothing and knows no jobs: who asks the daemon brings how (see Control).
//
// Sources: the manual page nvidia-cuda-mps-control(1), NVIDIA's document "Multi-Process Service"
// (docs.nvidia.com/deploy/mps), and the texts within the control program of driver 550.
package mps

// Programs of MPS.
const (
	ControlProgram = "nvidia-cuda-mps-control"
	ServerProgram  = "nvidia-cuda-mps-server"
)

// Variables that MPS and its clients read.
const (
	// PipeDirectory is where the daemon's sockets are: the same for the daemon and all of its clients. A process that
	// finds no daemon there runs without MPS and says nothing.
	PipeDirectory = "CUDA_MPS_PIPE_DIRECTORY"
	// LogDirectory is where daemon and server write their logs.
	LogDirectory = "CUDA_MPS_LOG_DIRECTORY"
	// ActiveThreads is the share of a GPU's multiprocessors that a process may use, in per cent; in a client's
	// environment it can only lower what the daemon has.
	ActiveThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	// PinnedMemory is how much device memory a process may take, by the number that the daemon gives the device:
	// 0=18G.
	PinnedMemory = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// DefaultPipeDirectory is where CUDA looks for a daemon that nothing names.
const DefaultPipeDirectory = "/tmp/nvidia-mps"

// Names of what is in a daemon's folders.
const (
	PIDFile    = "nvidia-cuda-mps-control.pid"
	ControlLog = "control.log"
	ServerLog  = "server.log"
)

// longestSocket is the longest name of a socket that the daemon makes in its folder.
const longestSocket = "/control_privileged"

// maxSocketPath is what a unix socket's address holds on Linux, less its final zero (unix(7)).
const maxSocketPath = 107

// Fits reports whether a folder's path is short enough for the sockets of a daemon.
func Fits(dir string) bool { return len(dir)+len(longestSocket) <= maxSocketPath }

// OpenFiles is how many files a daemon should be able to open: its server maps segments for each client, and many
// clients run into the usual 1024.
const OpenFiles = 16384
