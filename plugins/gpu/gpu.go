// Package gpu is the contract between muster and what looks at devices for it, in
// plain structs: nvml and nvidia-smi here, a site's own for other hardware. It knows
// nothing of the launcher.
package gpu

import "context"

// Prober looks at the GPUs of the machine that it runs on. It opens no CUDA context
// (or its like): one would take memory and, in exclusive mode, the device.
type Prober interface {
	// Probe reads everything once. Its error means that nothing is known of GPUs here;
	// one lost GPU is a GPU with a state, not an error.
	Probe(ctx context.Context) (*Inventory, error)
}

// Inventory is what a prober found. A value that could not be read is nil, and Why says why,
// by the value's JSON name ("memory.total"), of one GPU or, for all, of the machine. A
// slice that is empty but not nil was read: there are none.
type Inventory struct {
	Source string            `json:"source"`          // "nvml", "nvidia-smi", or a plugin's name
	Driver *string           `json:"driver"`          // version, such as "550.54.15"
	CUDA   *string           `json:"cuda"`            // highest CUDA version of the driver, such as "12.4"
	GPUs   []GPU             `json:"gpus"`            // by index
	Links  [][]Link          `json:"links"`           // Links[i][j] joins GPUs[i] and GPUs[j]; always square
	Why    map[string]string `json:"why,omitempty"`   // reasons for nil values
	Notes  []string          `json:"notes,omitempty"` // what did not fit, such as a damaged table
	// Visibility is how processes are told which of these devices are theirs. The zero
	// value is NVIDIA's way.
	Visibility Visibility `json:"visibility,omitzero"`
}

// Visibility is how processes are told which devices are theirs.
type Visibility struct {
	Variable string `json:"variable,omitempty"` // "": CUDA_VISIBLE_DEVICES
	Names    string `json:"names,omitempty"`    // what the variable holds: "uuid" (also "") or "index"
}

// GPU states.
const (
	StateOK         = "ok"
	StateLost       = "lost"        // NVML_ERROR_GPU_IS_LOST; it has fallen off the bus
	StateNeedsReset = "needs_reset" // NVML_ERROR_RESET_REQUIRED
	StateUnknown    = "unknown"     // it is there, but does not answer properly
)

// GPU is one device.
type GPU struct {
	Index int    `json:"index"` // as nvidia-smi shows it: by PCI address
	UUID  string `json:"uuid"`  // "GPU-…"; empty where a lost GPU does not tell
	PCI   string `json:"pci"`   // domain:bus:device.function in sysfs form, such as 0000:0f:00.0
	Name  string `json:"name"`
	State string `json:"state"`

	PCIe        PCIe      `json:"pcie"`
	Memory      Memory    `json:"memory"`
	Processes   []Process `json:"processes"`    // that hold memory; others' may not show (containers)
	ComputeMode *string   `json:"compute_mode"` // "default", "exclusive_process", "prohibited"
	MIG         MIG       `json:"mig"`
	ECC         ECC       `json:"ecc"`
	Remapped    Remapped  `json:"remapped"`
	Retired     Retired   `json:"retired"`
	// Throttled lists why clocks are held down now: "hw_slowdown", "hw_thermal",
	// "hw_power_brake", "sw_thermal", "sw_power_cap". Idle and set clocks do not count.
	Throttled []string `json:"throttled"`
	// Recovery is the driver's recovery action: "none", "gpu_reset", "node_reboot",
	// "drain_p2p", "drain_and_reset"; newer ones in the same spelling.
	Recovery *string `json:"recovery"`
	// NVLinks are nil where the product has none, MIG hides them or nobody tells (Why
	// says which), and empty where all are inactive and their number is not told.
	NVLinks []NVLink `json:"nvlinks"`
	// Persistence is whether the driver stays loaded without clients.
	Persistence *bool `json:"persistence"`
	// Fabric is the state of the NVSwitch fabric: "completed", "in_progress",
	// "not_started", and "failed" for one that completed with an error.
	Fabric *string `json:"fabric"`

	Why map[string]string `json:"why,omitempty"`
}

// PCIe is the link to the machine. Idle cards lower the generation to save power.
type PCIe struct {
	Generation    *int `json:"generation"`
	GenerationMax *int `json:"generation_max"`
	Width         *int `json:"width"`
	WidthMax      *int `json:"width_max"`
}

// Memory is in bytes, from nvidia-smi in whole MiB. Total is used + free + reserved;
// reserved is the driver's own, which drivers before 510 count as used.
type Memory struct {
	Total    *uint64 `json:"total"`
	Used     *uint64 `json:"used"`
	Reserved *uint64 `json:"reserved"`
}

// Process holds memory of a GPU. PIDs are of the host's pid namespace.
type Process struct {
	PID    int     `json:"pid"`
	Name   string  `json:"name,omitempty"`
	Kind   string  `json:"kind"`         // "compute", "graphics", "both", "mps"
	Memory *uint64 `json:"memory"`       // nil: see Why, "processes.memory"
	GI     *int    `json:"gi,omitempty"` // the MIG instance that it runs on
	CI     *int    `json:"ci,omitempty"`
}

// MIG is the partitioning of a GPU.
type MIG struct {
	Enabled   *bool         `json:"enabled"` // nil: not supported
	Pending   *bool         `json:"pending"` // after the next reset
	Instances []MIGInstance `json:"instances"`
}

// MIGInstance is a device made of a part of a GPU. Compute instances of one GPU instance
// share its memory.
type MIGInstance struct {
	Index   int     `json:"index"`   // among the MIG devices of its GPU, as nvidia-smi shows it
	UUID    string  `json:"uuid"`    // "MIG-…"; empty where it is not told
	Profile string  `json:"profile"` // such as "1g.10gb", "1c.3g.40gb"
	GI      *int    `json:"gi"`      // GPU instance id
	CI      *int    `json:"ci"`      // compute instance id
	Memory  *uint64 `json:"memory"`  // bytes
	Used    *uint64 `json:"used"`    // bytes of it
}

// ECC counts uncorrected errors: since the driver was loaded, and ever.
type ECC struct {
	Enabled      *bool   `json:"enabled"`
	Volatile     *uint64 `json:"volatile_uncorrected"`
	Aggregate    *uint64 `json:"aggregate_uncorrected"`
	SRAMVolatile *uint64 `json:"sram_volatile_uncorrected"`
}

// Remapped is about memory rows put out of use (Ampere and newer).
type Remapped struct {
	Correctable   *int  `json:"correctable"`
	Uncorrectable *int  `json:"uncorrectable"`
	Pending       *bool `json:"pending"`
	Failed        *bool `json:"failed"`
}

// Retired is about memory pages put out of use (Volta and older).
type Retired struct {
	SingleBit *int  `json:"single_bit"`
	DoubleBit *int  `json:"double_bit"`
	Pending   *bool `json:"pending"`
}

// NVLink is one NVLink port of a GPU.
type NVLink struct {
	Link   int  `json:"link"`
	Active bool `json:"active"`
}

// Link is the nearest way between two GPUs: "X" (the same), "NV" with the number of
// NVLinks, or what nvidia-smi calls the PCIe way: "PIX", "PXB", "PHB", "NODE", "SYS".
// Empty: unknown.
type Link string
