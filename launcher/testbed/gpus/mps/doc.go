// Package mps is NVIDIA's Multi-Process Service on the machine of a scenario (package
// gpus): the control daemon with its front end, the server, and what a CUDA process does
// to become a client.
//
//   - Control is nvidia-cuda-mps-control: -d and -f start the daemon, without an option it
//     is the front end that passes commands on.
//   - Server is nvidia-cuda-mps-server, which only a daemon starts: one for each user, as
//     this user, at the first client.
//   - Connect is what the CUDA library does at cuInit. cudaworker calls it.
//
// Behaviour, words and forms are those of the manual page of nvidia-cuda-mps-control and
// of NVIDIA's MPS document (https://docs.nvidia.com/deploy/mps/). Where these are silent,
// the stand-in does what is hardest on who uses it: a daemon that is killed leaves its
// server and its files, a client whose folder has no daemon says nothing.
//
// # In end-to-end tests
//
// Hosts with GPUs have both programs in /usr/bin, unless the scenario says NoMPS. Ranks
// that run cudaworker are clients where their CUDA_MPS_PIPE_DIRECTORY has a daemon; what
// they got stands in "mps" of their line of JSON, which is null without MPS. These flags
// of it make trouble:
//
//	-fault        end by an illegal access, which takes all along that share the GPU
//	-stuck        stay when the server has ended the contexts: it remains in FAULT
//	-deaf         take no notice of SIGTERM
//	-contexts N   have so many contexts: limits count these, not processes
//	-everywhere   have a context on each device that is visible: faults spread by such clients
//
// Servers and daemons are processes as any: tests kill them, stop them by SIGSTOP, and
// remove their files. What they do wrong by themselves are faults of the scenario
// (gpus.Fault), which are looked up at every step, so that Host.SetGPUs can turn them on
// and off under running processes. Function is one of
//
//	nvidia-cuda-mps-control           any start of the program
//	nvidia-cuda-mps-control -f        a start with this option, -d likewise
//	nvidia-cuda-mps-control quit      the daemon's answer to this command; "*": to any
//	nvidia-cuda-mps-control client    the daemon's answer to a new client
//	nvidia-cuda-mps-server            the server's start
//	nvidia-cuda-mps-server client     the server when it is given a client
//
// and Do "hang" (for Seconds), "crash" (SIGSEGV), or "error": Says is printed or answered,
// and what starts ends with the status Error. A refused start of the server leaves the
// client with cudaErrorMpsConnectionFailed. For example:
//
//	s := gpus.L40S()
//	s.Faults = []gpus.Fault{{Function: gpus.MPSControl + " quit", Do: "hang", Seconds: 30}}
//	err := host.SetGPUs(s)
//
// SetGPUs also sets back compute modes, which nvidia-smi -c changes on the host alone.
//
// Limits follow from the scenario: 16 contexts for each GPU older than Volta, 48 since, 60
// where its CUDA is 13.1 or newer. Commands that Scenario.Lacks names are unknown to the
// daemon, as they are to an older one.
//
// Control and Server each own the goroutines that they start, which end with the process;
// that of a Client ends when its connection does.
package mps
