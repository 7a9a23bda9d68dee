package nvidia

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

func gpuOnBus(pci, driver string) map[string]string {
	return onBus(pci, "0x10de", "0x030200", driver)
}

func onBus(pci, vendor, class, driver string) map[string]string {
	dir := "sys/devices/pci0000:00/" + pci
	files := map[string]string{
		"sys/bus/pci/devices/" + pci: "-> ../../../devices/pci0000:00/" + pci,
		dir + "/vendor":              vendor + "\n",
		dir + "/class":               class + "\n",
	}
	if driver != "" {
		files[dir+"/driver"] = "-> ../../../bus/pci/drivers/" + driver
		files["sys/bus/pci/drivers/"+driver+"/bind"] = ""
	}
	return files
}

func TestAGPUWhoseDriverIsSilentIsNotNoGPU(t *testing.T) {
	t.Setenv("PATH", "/opt/tools")
	for _, test := range []struct {
		name  string
		files map[string]string
		sign  string
		count int
	}{
		{"nothing", onBus("0000:00:02.0", "0x8086", "0x030000", ""), "", 0},
		{"its sound only", onBus("0000:00:02.1", "0x10de", "0x040300", ""), "", 0},
		{"two", hostfstest.Merge(gpuOnBus("0000:00:05.0", "nvidia"), gpuOnBus("0000:00:06.0", "nvidia")), "2 NVIDIA devices on the PCI bus", 2},
		{"without a driver", gpuOnBus("0000:00:05.0", ""), "1 NVIDIA device on the PCI bus (no driver has it)", 1},
		{"nouveau", hostfstest.Merge(gpuOnBus("0000:00:05.0", "nouveau"), gpuOnBus("0000:00:06.0", "nouveau")), "2 NVIDIA devices on the PCI bus (nouveau has them)", 2},
		{"one for a virtual machine", hostfstest.Merge(gpuOnBus("0000:00:05.0", "vfio-pci"), gpuOnBus("0000:00:06.0", "nvidia")),
			"2 NVIDIA devices on the PCI bus (vfio-pci has 1)", 1},
		{"a container without sysfs", map[string]string{"dev/nvidiactl": ""}, "NVIDIA's device file /dev/nvidiactl is there", 0},
		{"WSL", map[string]string{"dev/dxg": ""}, "Windows lends its GPU (/dev/dxg)", 0},
		{"the library", map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}, "the driver's library is there (/usr/lib64/libnvidia-ml.so.1)", 0},
		{"nvidia-smi in PATH", map[string]string{"opt/tools/nvidia-smi": ""}, "nvidia-smi is installed (/opt/tools/nvidia-smi)", 0},
	} {
		root := hostfstest.Tree(t, test.files)
		sign, hardware := Sign(root)
		if sign != test.sign || hardware != (test.count > 0 || strings.Contains(sign, "/dev/")) || OnBus(root).GPUs() != test.count {
			t.Errorf("%s: %q, hardware: %v, %d on the bus", test.name, sign, hardware, OnBus(root).GPUs())
		}
	}
}

func TestSwitchesOfVirtualMachinesAreNotTheHosts(t *testing.T) {
	root := hostfstest.Tree(t, hostfstest.Merge(onBus("0000:00:07.0", "0x10de", "0x068000", "nvidia-nvswitch"), onBus("0000:00:08.0", "0x10de", "0x068000", ""),
		onBus("0000:00:09.0", "0x10de", "0x068000", "vfio-pci"), onBus("0000:00:0a.0", "0x8086", "0x068000", ""), gpuOnBus("0000:00:05.0", "nvidia")))
	if bus := OnBus(root); bus.NVSwitches() != 2 || bus.GPUs() != 1 {
		t.Errorf("%+v", bus)
	}
}

const debian = `Package: nvidia-fabricmanager-535
Status: deinstall ok config-files
Version: 535.104.05-1

Package: nvidia-fabricmanager-dev-550
Status: install ok installed
Version: 550.1-1

Package: nvidia-fabricmanager-550
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 550.54.15-0ubuntu0.22.04.1
Description: Fabric Manager
 Version: of the text

Package: zsh
Status: install ok installed
Version: 5.9-4
`

func TestTheFabricManagerIsKnownByItsProcess(t *testing.T) {
	seesAll := map[string]string{"proc/1/comm": "systemd\n", "proc/200/comm": "sshd\n", "proc/self/comm": "nv-fabricmanage\n"}
	there := map[string]string{"usr/bin/nv-fabricmanager": "", "usr/lib/systemd/system/nvidia-fabricmanager.service": "", "var/lib/dpkg/status": debian}
	process := map[string]string{"proc/4711/comm": "nv-fabricmanage\n"}
	unit := func(tree, text string) map[string]string {
		return map[string]string{"sys/fs/cgroup" + tree + "/system.slice/nvidia-fabricmanager.service/cgroup.procs": text}
	}
	for _, test := range []struct {
		name    string
		files   map[string]string
		ownPIDs bool
		want    FabricManager
	}{
		{"it runs", hostfstest.Merge(seesAll, there, process), false, FabricManager{Active, "550.54.15"}},
		{"it does not", hostfstest.Merge(seesAll, there), false, FabricManager{Inactive, "550.54.15"}},
		{"its unit is empty", hostfstest.Merge(seesAll, there, unit("", "")), false, FabricManager{Inactive, "550.54.15"}},
		{"it is a container's", hostfstest.Merge(seesAll, process), false, FabricManager{Active, ""}},
		{"another package system", hostfstest.Merge(seesAll, map[string]string{"usr/bin/nv-fabricmanager": ""}), false, FabricManager{Inactive, ""}},
		{"nobody installed it", seesAll, false, FabricManager{State: NotInstalled}},
		{"processes are hidden", map[string]string{"proc/300/comm": "bash\n"}, false, FabricManager{}},
		{"processes are hidden, its unit is not", unit("", "4711\n"), false, FabricManager{State: Active}},
		{"version 1 of cgroups", unit("/systemd", "4711\n"), false, FabricManager{State: Active}},
		{"seen from a container", hostfstest.Merge(seesAll, there), true, FabricManager{"", "550.54.15"}},
	} {
		if got := FindFabricManager(hostfstest.Tree(t, test.files), test.ownPIDs); got != test.want {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestPeerMemoryIsOnlyToldWhereFilesProveIt(t *testing.T) {
	const open, closed = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15\n", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
	for _, test := range []struct {
		name, driver, kernel, module, want string
	}{
		{"the module", closed, "5.4.0-100-generic", "nvidia_peermem", "yes"},
		{"Mellanox's own, older", closed, "4.18.0", "nv_peer_mem", "yes"},
		{"dma-buf", open, "5.15.0-105-generic", "", "yes"},
		{"dma-buf of a newer kernel", open, "6.8.0", "", "yes"},
		{"a closed driver has no dma-buf", closed, "6.8.0", "", "no"},
		{"an older kernel may have been given it", open, "5.4.0-100-generic", "", "?"},
		{"EFA has a way of its own", closed, "6.1.0", "efa", "?"},
		{"nothing is told of the driver", "", "6.1.0", "", "?"},
		{"an odd kernel", open, "next", "", "?"},
	} {
		files := map[string]string{"sys/module/nvidia/version": "550.54.15\n", "proc/driver/nvidia/version": test.driver}
		if test.module != "" {
			files["sys/module/"+test.module+"/version"] = ""
		}
		got := "?"
		if p := PeerMemory(hostfstest.Tree(t, files), test.kernel); p != nil {
			got = map[bool]string{true: "yes", false: "no"}[*p]
		}
		if got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
	}
	if PeerMemory(hostfstest.Tree(t, map[string]string{"sys/module/nvidia_peermem/version": ""}), "6.1.0") != nil {
		t.Error("without the driver")
	}
}
