package nvidia

import (
	"os"
	"path"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// traces are files that only a machine with NVIDIA's driver has.
var traces = []struct{ path, sign string }{
	{"/proc/driver/nvidia", "NVIDIA's kernel driver is loaded (/proc/driver/nvidia)"},
	{"/dev/nvidiactl", "NVIDIA's device file /dev/nvidiactl is there"},
	{"/dev/dxg", "Windows lends its GPU (/dev/dxg)"},
}

// libraryFolders are where the driver's library is put by distributions, WSL, NixOS and
// the containers of some clouds.
var libraryFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
	"/run/opengl-driver/lib", "/home/kubernetes/bin/nvidia/lib64",
}

// programFolders are where nvidia-smi is besides PATH.
var programFolders = []string{
	"/usr/bin", "/usr/local/bin", "/bin", "/usr/local/nvidia/bin", "/run/nvidia/driver/usr/bin",
	"/run/current-system/sw/bin", "/usr/lib/wsl/lib", "/opt/bin",
}

// Sign says what tells of NVIDIA on this host; "" where there is nothing. A host where a
// GPU is but no driver answers is not one without a GPU.
//
// hardware is set where a device tells, not only software, which may be installed on
// machines that have no GPU.
func Sign(root hostfs.Root) (sign string, hardware bool) {
	if bus := OnBus(root); len(bus.gpus) > 0 {
		return bus.words(), bus.GPUs() > 0
	}
	for _, t := range traces {
		if root.Exists(t.path) {
			return t.sign, true
		}
	}
	for _, dir := range libraryFolders {
		if file := path.Join(dir, "libnvidia-ml.so.1"); root.Exists(file) {
			return "the driver's library is there (" + file + ")", false
		}
	}
	for _, dir := range append(strings.Split(os.Getenv("PATH"), ":"), programFolders...) {
		if file := path.Join(dir, "nvidia-smi"); path.IsAbs(file) && root.IsProgram(file) {
			return "nvidia-smi is installed (" + file + ")", false
		}
	}
	return "", false
}
