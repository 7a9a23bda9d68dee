package config

import "strings"

// owned are the variables that the plan sets for each rank, with what to write
// instead of setting them.
var owned = map[string]string{
	"RANK":                    "it is the rank's own number. Its place follows from the order of hosts; other variables can use rank.global.",
	"LOCAL_RANK":              "it is the rank's number on its host. Other variables can use rank.local.",
	"WORLD_SIZE":              "it is the number of ranks: set ranks { per_host = ... }.",
	"LOCAL_WORLD_SIZE":        "it is the number of ranks on the host: set ranks { per_host = ... }.",
	"GROUP_RANK":              "it is the host's number, which follows from the order of hosts.",
	"GROUP_WORLD_SIZE":        "it is the number of hosts.",
	"ROLE_RANK":               "it is the rank's own number; muster has one role.",
	"ROLE_WORLD_SIZE":         "it is the number of ranks; muster has one role.",
	"ROLE_NAME":               "muster has one role.",
	"MASTER_ADDR":             "it is an address of the first host that every host was seen to reach. Change the order of hosts to choose another.",
	"MASTER_PORT":             "it is a new free port for each attempt. Set ports = \"20000-29999\" to say where it may lie.",
	"CUDA_VISIBLE_DEVICES":    "the plan gives each rank its GPUs. Set ranks { devices = [0, 1] } to choose them, or devices = \"none\" for none; a CUDA_VISIBLE_DEVICES found on a host is respected.",
	"CUDA_DEVICE_ORDER":       "it is always PCI_BUS_ID, so that GPU numbers are those of nvidia-smi. Leave it out.",
	"CUDA_MPS_PIPE_DIRECTORY": "each MPS daemon of a run has a folder of its own: write mps { ranks_per_gpu = N }, and for a daemon that is there already daemon = \"existing\" with pipe_directory.",
	"CUDA_MPS_LOG_DIRECTORY":  "the logs of a run's MPS daemons are kept with those of its ranks: write mps { ranks_per_gpu = N }.",
}

// ownedPrefixes are families of such variables.
var ownedPrefixes = map[string]string{
	"TORCHELASTIC_": "muster tells workers of the run and the attempt with these.",
	"MUSTER_":       "names with MUSTER_ are muster's own. Choose another name.",
}

// ownedByJAX are those that the plan sets where program = "jax".
var ownedByJAX = map[string]string{
	"JAX_COORDINATOR_ADDRESS":    "it is an address of the first host that every host was seen to reach, with a new free port for each attempt.",
	"JAX_LOCAL_DEVICE_IDS":       "the plan gives each rank its GPU. Set ranks { devices = [0, 1] } to choose them.",
	"OMPI_MCA_orte_hnp_uri":      "jax.distributed.initialize() takes the number of ranks from Open MPI's variables where this one is set, and muster sets them.",
	"OMPI_COMM_WORLD_SIZE":       "it is the number of ranks: set ranks { per_host = ... }.",
	"OMPI_COMM_WORLD_RANK":       "it is the rank's own number. Other variables can use rank.global.",
	"OMPI_COMM_WORLD_LOCAL_RANK": "it is the rank's number on its host. Other variables can use rank.local.",
}

// ownedBy is why a variable cannot be set in env, "" where it can.
func ownedBy(name string) string {
	if reason := owned[name]; reason != "" {
		return reason
	}
	for prefix, reason := range ownedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	return ""
}
