package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Words of PyTorch for what CUDA refuses. The first lines are cudaGetErrorString of
// cudaErrorInvalidDevice, cudaErrorDevicesUnavailable and cudaErrorNoDevice.
var (
	ErrOrdinal = errors.New("torch.AcceleratorError: CUDA error: invalid device ordinal\n" +
		"GPU device may be out of range, do you have enough GPUs?")
	ErrBusy   = errors.New("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")
	ErrNoGPUs = errors.New("RuntimeError: No CUDA GPUs are available")
)

// FromEnvironment are the devices that this process sees.
func FromEnvironment(s *gpus.Scenario) []Device {
	var list *string
	if value, is := os.LookupEnv("CUDA_VISIBLE_DEVICES"); is {
		list = &value
	}
	return Visible(s, list, os.Getenv("CUDA_DEVICE_ORDER"))
}

// AmongFromEnvironment are those of an MPS server's devices that this process, its client,
// sees: it counts as the server does, whatever its own CUDA_DEVICE_ORDER says.
func AmongFromEnvironment(devices []Device) []Device {
	if value, is := os.LookupEnv("CUDA_VISIBLE_DEVICES"); is {
		return Among(devices, value)
	}
	return devices
}

// Process is who opens a device.
type Process struct {
	Server int // the PID of the MPS server whose client it is; 0: of none
	// Limit is how much memory of the device it may have in all, in bytes; 0: no limit.
	Limit uint64
}

// mpsContext is what a context of a client takes of its limit: NVIDIA's document shows
// 4072 MiB free of 4 GiB.
const mpsContext = 24 << 20

// Nth is the device that a rank takes.
func Nth(visible []Device, n int) (Device, error) {
	switch {
	case len(visible) == 0:
		return Device{}, ErrNoGPUs
	case n < 0 || n >= len(visible):
		return Device{}, ErrOrdinal
	default:
		return visible[n], nil
	}
}

// Open says whether a process, which sees these devices, gets a context on one of them and
// so much memory. In exclusive-process mode the first process has the device, and clients
// of MPS have it through their server.
func Open(s *gpus.Scenario, visible []Device, d Device, p Process, bytes uint64, held []gpus.Holding) error {
	g := &s.GPUs[d.GPU]
	switch d.Mode {
	case "prohibited":
		return ErrBusy
	case "exclusive_process":
		if slices.ContainsFunc(g.Holders(held), func(h gpu.Process) bool { return h.PID != p.Server && h.Kind != "mps" }) {
			return ErrBusy
		}
	}
	total, free := Memory(s, d, p, held)
	if bytes > free {
		return fmt.Errorf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %.2f GiB. GPU %d has a total capacity of %.2f GiB of which %.2f GiB is free. See documentation for Memory Management",
			gigabytes(bytes), ordinal(visible, d), gigabytes(total), gigabytes(free))
	}
	return nil
}

// Memory is what cudaMemGetInfo tells a process, in bytes. A limit shows in what is free,
// not in the total.
func Memory(s *gpus.Scenario, d Device, p Process, held []gpus.Holding) (total, free uint64) {
	g := &s.GPUs[d.GPU]
	total, used := d.Total, g.Used(held)
	if d.MIG {
		for i, mig := range g.MIG.Instances {
			if mig.UUID == d.UUID {
				used = g.InstanceUsed(i, held)
			}
		}
	} else if g.Memory.Reserved != nil {
		used += *g.Memory.Reserved
	}
	free = total - min(total, used)
	if p.Limit > 0 {
		free = min(free, p.Limit-min(p.Limit, mpsContext))
	}
	return total, free
}

// ordinal is the number that a process has for a device: its place among those it sees.
func ordinal(visible []Device, d Device) int {
	return max(0, slices.IndexFunc(visible, func(v Device) bool { return v.UUID == d.UUID }))
}

func gigabytes(bytes uint64) float64 { return float64(bytes) / (1 << 30) }
