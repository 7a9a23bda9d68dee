package facts

import (
	"slices"
	"strings"
)

// DeviceVariables are the variables by which a host, its scheduler or a container says
// which devices are to be used, and how: CUDA's and ROCm's own, nvidia-container-toolkit's and
// Slurm's.
var DeviceVariables = []string{
	"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
	"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
	"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
	"SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_PER_TASK",
}

// libraryPrefixes begin the names of variables that NCCL and torch read.
var libraryPrefixes = []string{"NCCL_", "TORCH_NCCL_", "TORCH_FR_", "PYTORCH_"}

// secretVariables are of those and hold secrets: that they are set is told, and no more
// (NCCL_PSK is the key of NCCL's own connections).
var secretVariables = []string{"NCCL_PSK"}

// Hidden stands for the value of a secret.
const Hidden = "(hidden)"

// Telling are the variables of an environment that decide how devices and libraries are
// used, and those that are asked for by name.
func Telling(environ map[string]string, names []string) map[string]string {
	var found map[string]string
	for name, value := range environ {
		if !tells(name) && !slices.Contains(names, name) {
			continue
		}
		if slices.Contains(secretVariables, name) {
			value = Hidden
		}
		if found == nil {
			found = map[string]string{}
		}
		found[name] = value
	}
	return found
}

func tells(name string) bool {
	return slices.Contains(DeviceVariables, name) ||
		slices.ContainsFunc(libraryPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
