// Package gpus makes machines with GPUs out of one file: a scenario says what the GPUs of
// a machine look like, and all who could be asked answer from it.
//
//   - nvml/ is a C library that answers as libnvidia-ml.so.1.
//   - cmd/nvidia-smi prints what the real program prints.
//   - Tree gives the files of /sys, /proc and /dev.
//   - cmd/cudaworker behaves as a CUDA process does towards devices.
//   - cmd/nvidia-cuda-mps-control and cmd/nvidia-cuda-mps-server are MPS (package mps).
//
// All of them read the folder that $TESTBED_GPUS names, or Folder: Write puts the scenario
// there, and a worker notes in its folder "state" what it holds (see Holding). Both the
// library and the program look again at every call, so a scenario may be replaced under
// running processes.
//
// What the stand-ins say has the form of public captures of the real tools, and of
// NVML's header (https://docs.nvidia.com/deploy/nvml-api/). Figures of machines are from
// public data sheets and pasted outputs of nvidia-smi topo -m.
//
// The package knows nothing of jobs, plans and hosts; package testbed mounts what it
// makes. It starts no goroutines.
package gpus
