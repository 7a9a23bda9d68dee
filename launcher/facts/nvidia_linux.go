package facts

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// CountNVIDIA counts NVIDIA's GPUs on the PCI bus (/sys/bus/pci/devices, vendor 0x10de,
// class 0x0300 or 0x0302), whether or not a driver has them. Parts of one (SR-IOV) and
// those that are handed to a virtual machine do not count. It is 0 where there is no sysfs.
func CountNVIDIA(root Root) int {
	n := 0
	for _, driver := range nvidiaDrivers(root) {
		if driver != "vfio-pci" {
			n++
		}
	}
	return n
}

// nvidiaDrivers are the drivers of the GPUs on the bus, one for each, "" for none.
func nvidiaDrivers(root Root) []string {
	const bus = "/sys/bus/pci/devices/"
	var drivers []string
	for _, pci := range root.Names(bus) {
		if root.Read(bus+pci+"/vendor") != "0x10de" {
			continue
		}
		class := root.Read(bus + pci + "/class")
		isGPU := strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")
		if isGPU && !root.Exists(bus+pci+"/physfn") {
			drivers = append(drivers, root.BaseName(bus+pci+"/driver"))
		}
	}
	return drivers
}

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

// HasNVIDIA says what tells of NVIDIA on this host; "" where there is nothing. A
// host where a GPU is but no driver answers is not one without a GPU. It reads only
// sysfs and looks for files, so that it can be asked at every start.
//
// hardware is set where a device tells, not only software, which may be installed on
// machines that have no GPU.
func HasNVIDIA(root Root) (sign string, hardware bool) {
	if drivers := nvidiaDrivers(root); len(drivers) > 0 {
		return onTheBus(drivers), CountNVIDIA(root) > 0
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

// onTheBus words what is on the bus, with the drivers that are not NVIDIA's own.
func onTheBus(drivers []string) string {
	words := "1 NVIDIA device on the PCI bus"
	if len(drivers) > 1 {
		words = fmt.Sprintf("%d NVIDIA devices on the PCI bus", len(drivers))
	}
	others := map[string]int{}
	for _, driver := range drivers {
		if driver != "nvidia" {
			others[driver]++
		}
	}
	var parts []string
	for driver, n := range others {
		part := "no driver has"
		if driver != "" {
			part = driver + " has"
		}
		which := fmt.Sprint(n)
		if n == len(drivers) {
			which = "them"
			if n == 1 {
				which = "it"
			}
		}
		parts = append(parts, part+" "+which)
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return words
	}
	return words + " (" + strings.Join(parts, ", ") + ")"
}
