// Package envvar knows the names of environment variables: which muster sets itself, which
// describe the machine that they are set on, and which a pattern names.
package envvar

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var nameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsName reports whether a variable can be called so.
func IsName(name string) bool { return nameForm.MatchString(name) }

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

// jaxOwned are those that the plan sets where program = "jax".
var jaxOwned = map[string]string{
	"JAX_COORDINATOR_ADDRESS":    "it is an address of the first host that every host was seen to reach, with a new free port for each attempt.",
	"JAX_LOCAL_DEVICE_IDS":       "the plan gives each rank its GPU. Set ranks { devices = [0, 1] } to choose them.",
	"OMPI_MCA_orte_hnp_uri":      "jax.distributed.initialize() takes the number of ranks from Open MPI's variables where this one is set, and muster sets them.",
	"OMPI_COMM_WORLD_SIZE":       "it is the number of ranks: set ranks { per_host = ... }.",
	"OMPI_COMM_WORLD_RANK":       "it is the rank's own number. Other variables can use rank.global.",
	"OMPI_COMM_WORLD_LOCAL_RANK": "it is the rank's number on its host. Other variables can use rank.local.",
}

// Owner is why a variable cannot be set in env, "" where it can. jax is whether the ranks'
// program is JAX's.
func Owner(name string, jax bool) string {
	if reason := owned[name]; reason != "" {
		return reason
	}
	for prefix, reason := range ownedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	if jax {
		return jaxOwned[name]
	}
	return ""
}

// machineOwn are variables that describe the machine and session that they are set in.
// They travel only where they are written out: HOME of a laptop is wrong on a host.
var machineOwn = []string{
	"CONDA_*", "DBUS_*", "DISPLAY", "HOME", "HOSTNAME", "LD_*", "LOGNAME", "MAIL", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL",
	"SLURM_*", "SSH_*", "TERM", "TMPDIR", "USER", "VIRTUAL_ENV", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_*", "_",
}

// MaxLength is what Linux takes as a variable, without the sign between name and value and the
// NUL at the end.
const MaxLength = 128<<10 - 2

// Forwarded are the variables of environ that the patterns name and that can be carried to a
// rank.
func Forwarded(patterns []string, environ map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range environ {
		fits := IsName(name) && Owner(name, false) == "" && utf8.ValidString(value) &&
			!strings.ContainsRune(value, 0) && len(name)+len(value) <= MaxLength
		if fits && slices.ContainsFunc(patterns, func(p string) bool { return Names(p, name) }) {
			found[name] = value
		}
	}
	return found
}

// Names reports whether a pattern of forward is about a variable. Those of the machine itself
// must be written out.
func Names(pattern, name string) bool {
	if pattern == name {
		return true
	}
	isOwn := slices.ContainsFunc(machineOwn, func(own string) bool { return matches(own, name) })
	return !isOwn && matches(pattern, name)
}

// matches is whether name is pattern, in which each * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}
