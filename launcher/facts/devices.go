package facts

import (
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Devices are the GPUs of a host, with what its kernel says of where they sit.
type Devices struct {
	*gpu.Inventory
	Near    []Near  `json:"near"`    // by position in GPUs
	Islands [][]int `json:"islands"` // positions of GPUs that reach each other by NVLink
	// Taken are the runs of muster that hold a GPU at the moment, by the GPU's UUID.
	Taken map[string]string `json:"taken,omitempty"`
	// Owners are the users of processes on GPUs, by pid, as far as they are seen here.
	Owners map[int]string `json:"owners,omitempty"`
	// PCIDevices counts NVIDIA's display and 3D controllers on the PCI bus, whether or not
	// a driver answers for them.
	PCIDevices int `json:"pci_devices,omitempty"`
	// NVSwitches counts NVIDIA's switches on the PCI bus. Where there are some CUDA does not
	// start before the fabric manager has.
	NVSwitches    int           `json:"nvswitches,omitempty"`
	FabricManager FabricManager `json:"fabric_manager,omitzero"`
	// KernelModule is the version of NVIDIA's module that is loaded; Driver is that of its
	// libraries.
	KernelModule string `json:"kernel_module,omitempty"`
	// Xids are the errors that NVIDIA's driver has reported since the boot, and NoXids why
	// they are not known; "" where the kernel's log was read.
	Xids   nvidia.Xids `json:"xids,omitempty"`
	NoXids string      `json:"no_xids,omitempty"`
	// Expected says what tells that there should be devices, "" where nothing does: the
	// hardware itself, or a plugin that the job file names.
	Expected string `json:"expected,omitempty"`
	// None says why nothing is known of GPUs here; "" where it is known, also that there
	// are none.
	None string `json:"none,omitempty"`
}

// FabricManager is what is known of nvidia-fabricmanager; empty without NVSwitches.
type FabricManager = nvidia.FabricManager

// Near is what is close to a GPU.
type Near struct {
	NUMA *int  `json:"numa"` // NUMA node of its PCI slot; nil where the machine has none or does not tell
	CPUs []int `json:"cpus"` // of that node that processes of this user may run on
	// HCAs are the nearest active InfiniBand or RoCE devices, by the PCI tree and then by
	// NUMA node, and HCALink the way to them: PIX, PXB, PHB, NODE or SYS.
	HCAs    []string `json:"hcas,omitempty"`
	HCALink gpu.Link `json:"hca_link,omitempty"`
}
