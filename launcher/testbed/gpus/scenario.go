package gpus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Scenario is what the GPUs of one machine look like.
type Scenario struct {
	Name   string `json:"name"`
	Driver string `json:"driver"` // "550.54.15"
	CUDA   string `json:"cuda"`   // "12.4"
	// Init is what keeps the driver's library from starting, one of Init…; empty: nothing.
	Init string `json:"init,omitempty"`
	// NoLibrary and NoProgram say that libnvidia-ml.so.1 and nvidia-smi are not installed.
	NoLibrary bool `json:"no_library,omitempty"`
	NoProgram bool `json:"no_program,omitempty"`
	// NoMPS says that nvidia-cuda-mps-control and nvidia-cuda-mps-server are not installed.
	NoMPS bool `json:"no_mps,omitempty"`
	// P2P is what keeps GPUs from reading each other's memory over PCIe, as nvidia-smi
	// topo -p2p r has it: "" nothing, "CNS" the chipset, "GNS" the product.
	P2P string `json:"p2p,omitempty"`

	GPUs     []GPU       `json:"gpus"`     // by PCI address, as NVML numbers them
	Nodes    []Node      `json:"nodes"`    // NUMA nodes
	NICs     []NIC       `json:"nics"`     // InfiniBand and RoCE devices
	Switches []PCIDevice `json:"switches"` // NVSwitches
	Faults   []Fault     `json:"faults,omitempty"`
	// Lacks are functions that the driver's library does not have, as old ones do not have
	// those of newer drivers (see Library), and commands that its MPS does not know.
	Lacks []string `json:"lacks,omitempty"`
}

// What Scenario.Init may say: the library does not start, for these reasons.
const (
	InitDriverNotLoaded = "driver_not_loaded" // NVML_ERROR_DRIVER_NOT_LOADED
	InitMismatch        = "mismatch"          // NVML_ERROR_LIB_RM_VERSION_MISMATCH
	InitNoPermission    = "no_permission"     // NVML_ERROR_NO_PERMISSION
	InitUnknown         = "unknown"           // NVML_ERROR_UNKNOWN
)

// GPU is one device: what a prober is to find of it, and what else its driver knows. In
// gpu.GPU, nil stands for what the product does not support: Processes, MIG.Instances
// and Throttled are empty instead where they are supported. These follow from the rest
// and are left nil: NVLinks (from Ports), Memory.Used and Used of MIG instances (from the
// processes and Unexplained).
type GPU struct {
	gpu.GPU
	Slot         Slot   `json:"slot"`
	Serial       string `json:"serial"`
	VBIOS        string `json:"vbios"`
	Architecture string `json:"architecture"` // "Ampere"
	Capability   string `json:"capability"`   // compute capability, "8.0"
	// Speed orders devices for CUDA_DEVICE_ORDER=FASTEST_FIRST: the peak of
	// single-precision arithmetic in GFLOP/s.
	Speed int `json:"speed"`
	// Unexplained is memory in use that no process explains, in bytes: the driver's own
	// few MiB, or a process of another container that nobody lists.
	Unexplained uint64 `json:"unexplained"`
	// Ports are the NVLink ports; nil: the product has none.
	Ports []Port `json:"ports"`
	// PortSpeed is the speed of a port in each direction, in MB/s as nvidia-smi nvlink -s
	// counts: 25000 of the A100's, 26562 of the H100's.
	PortSpeed int `json:"port_speed,omitempty"`
	// NoEvents is set where the driver tells no events of the product.
	NoEvents bool `json:"no_events,omitempty"`
	// Utilization is what the driver says of its work; nil: 0 % without processes, else
	// 100 % with 40 % of memory traffic. In MIG mode nobody says.
	Utilization *Utilization `json:"utilization,omitempty"`
}

// Utilization is how busy a GPU was of late, in percent of the time: its SMs, and the
// traffic of its memory.
type Utilization struct {
	GPU    int `json:"gpu"`
	Memory int `json:"memory"`
}

// Port is one NVLink port.
type Port struct {
	// Peer is the PCI address of the GPU or NVSwitch at the other end; empty: the link is
	// inactive.
	Peer   string `json:"peer,omitempty"`
	Switch bool   `json:"switch,omitempty"` // the peer is an NVSwitch
}

// Slot is where in the machine a PCI device is, and what it is.
type Slot struct {
	NUMA int `json:"numa"` // -1: the firmware does not say
	// Path is the host bridge and the bridges down to the device:
	// "pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0".
	Path   []string `json:"path"`
	Vendor string   `json:"vendor"` // "0x10de"
	Device string   `json:"device"` // "0x2330"
	Class  string   `json:"class"`  // "0x030200"
}

// PCIDevice is a device that is only there.
type PCIDevice struct {
	PCI string `json:"pci"`
	Slot
}

// Node is a NUMA node.
type Node struct {
	ID     int    `json:"id"`
	CPUs   string `json:"cpus"`   // "0-47,96-143"; empty: memory only
	Memory uint64 `json:"memory"` // bytes
}

// NIC is a device of /sys/class/infiniband with one port.
type NIC struct {
	Name string `json:"name"` // "mlx5_0"
	PCI  string `json:"pci"`
	Slot
	State  string `json:"state"`            // "4: ACTIVE", "1: DOWN"
	Rate   string `json:"rate"`             // "400 Gb/sec (4X NDR)"
	Layer  string `json:"layer"`            // "InfiniBand", "Ethernet"
	NetDev string `json:"netdev,omitempty"` // "ibp24s0"
	GUID   string `json:"guid"`             // "b8ce:f603:0001:0000"
}

// Fault makes a function of the library, or a program, fail, so that a test can see what
// becomes of who called it. A hang ends after Seconds, 60 where none are given. What of MPS
// can fail, package mps says.
type Fault struct {
	Function string `json:"function"`      // "nvmlDeviceGetMemoryInfo_v2", "*", Program, or of MPSControl or MPSServer
	GPU      *int   `json:"gpu,omitempty"` // nil: of any GPU
	Do       string `json:"do"`            // "hang", "crash" (SIGSEGV), "error"
	Seconds  int    `json:"seconds,omitempty"`
	Error    int    `json:"error,omitempty"` // the code of "error", such as 999; the program's exit status
	Says     string `json:"says,omitempty"`  // what a program of MPS says at an "error"
}

// The Function of faults of programs is, or begins with, their name.
const (
	Program    = "nvidia-smi"
	MPSControl = "nvidia-cuda-mps-control"
	MPSServer  = "nvidia-cuda-mps-server"
)

const (
	// Variable names the folder in the environment, for unit tests.
	Variable = "TESTBED_GPUS"
	// Folder is where the folder is on a testbed host.
	Folder = "/run/testbed-gpus"
	// ScenarioFile and StateFolder are in the folder.
	ScenarioFile = "scenario.json"
	StateFolder  = "state"
)

// Here is the folder of this process: from Variable, or Folder.
func Here() string { return cmp.Or(os.Getenv(Variable), Folder) }

// Write puts the scenario into a folder, in one step where there was one before.
func (s *Scenario) Write(folder string) error {
	numbered := s.Clone()
	for i := range numbered.GPUs {
		numbered.GPUs[i].Index = i
	}
	text, err := json.MarshalIndent(file{numbered, s.ways()}, "", " ")
	if err != nil {
		return err
	}
	state := filepath.Join(folder, StateFolder)
	if err := os.MkdirAll(state, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(state, 0o777); err != nil { // other users' workers note themselves too
		return err
	}
	path := filepath.Join(folder, ScenarioFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// file is the scenario with what the C library need not work out.
type file struct {
	*Scenario
	Ways [][]gpu.Link `json:"ways"` // the PCIe ways between the GPUs
}

// Read reads the scenario in a folder.
func Read(folder string) (*Scenario, error) {
	text, err := os.ReadFile(filepath.Join(folder, ScenarioFile))
	if err != nil {
		return nil, err
	}
	f := file{Scenario: &Scenario{}}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, ScenarioFile), err)
	}
	return f.Scenario, nil
}

// Clone returns a copy that shares nothing with s.
func (s *Scenario) Clone() *Scenario {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("gpus: a scenario is plain data: %v", err))
	}
	var c Scenario
	if err := json.Unmarshal(text, &c); err != nil {
		panic(fmt.Sprintf("gpus: a scenario is plain data: %v", err))
	}
	return &c
}
