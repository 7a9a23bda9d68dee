// Package nvidia knows where NVIDIA's driver is installed.
package nvidia

import "runtime"

// Library is the file name of NVML; the name without ".1" comes with the toolkit and is a stub.
const Library = "libnvidia-ml.so.1"

var triplet = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]

// LibraryFolders are where drivers put the library, often without telling the loader.
var LibraryFolders = []string{
	"/usr/lib/" + triplet, "/lib/" + triplet, "/usr/lib64", "/usr/lib",
	"/usr/lib/nvidia", "/usr/lib64/nvidia", "/usr/lib/" + triplet + "/nvidia/current",
	"/usr/lib/wsl/lib",                                                         // WSL
	"/usr/local/nvidia/lib64",                                                  // containers of some clouds
	"/opt/nvidia/lib64", "/opt/lib/lib64", "/home/kubernetes/bin/nvidia/lib64", // container-optimised systems
	"/run/nvidia/driver/usr/lib/" + triplet, "/run/nvidia/driver/usr/lib64", // driver in a container of the GPU operator
	"/run/opengl-driver/lib", // NixOS
}

// ProgramFolders are where the driver's programs may be besides PATH, which services and
// non-interactive shells often cut short.
var ProgramFolders = []string{
	"/usr/bin", "/usr/local/bin", "/bin",
	"/usr/local/nvidia/bin",        // containers of some clouds
	"/run/nvidia/driver/usr/bin",   // driver in a container of the GPU operator
	"/run/current-system/sw/bin",   // NixOS
	"/usr/lib/wsl/lib", "/opt/bin", // WSL; container-optimised systems
}
