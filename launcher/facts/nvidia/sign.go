package nvidia

import (
	"os"
	"path"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
	"github.com/muster-dev/muster/plugins/nvidia"
)

// traces are files that only a machine with NVIDIA's driver has.
var traces = []struct{ path, sign string }{
	{"/proc/driver/nvidia", "NVIDIA's kernel driver is loaded (/proc/driver/nvidia)"},
	{"/dev/nvidiactl", "NVIDIA's device file /dev/nvidiactl is there"},
	{"/dev/dxg", "Windows lends its GPU (/dev/dxg)"},
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
	for _, dir := range nvidia.LibraryFolders {
		if file := path.Join(dir, nvidia.Library); root.Exists(file) {
			return "the driver's library is there (" + file + ")", false
		}
	}
	folders := append([]string{os.Getenv("PATH")}, nvidia.ProgramFolders...)
	if file := root.LookPath("nvidia-smi", strings.Join(folders, ":"), "/"); file != "" {
		return "nvidia-smi is installed (" + file + ")", false
	}
	return "", false
}
