package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
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

// UsesMPS tells whether a control daemon of MPS serves this process's pipe directory.
func UsesMPS() bool {
	folder := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if folder == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(folder, "control"))
	return err == nil
}

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

// Open says whether a process of this kind, which sees these devices, gets a context on one
// of them and so much memory. In exclusive-process mode the first process has the device, and clients of MPS have it
// together.
func Open(s *gpus.Scenario, visible []Device, d Device, kind string, bytes uint64, held []gpus.Holding) error {
	g := &s.GPUs[d.GPU]
	switch d.Mode {
	case "prohibited":
		return ErrBusy
	case "exclusive_process":
		for _, p := range g.Holders(held) {
			if p.Kind != kind || kind != "mps" {
				return ErrBusy
			}
		}
	}
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
	if free := total - min(total, used); bytes > free {
		return fmt.Errorf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %.2f GiB. GPU %d has a total capacity of %.2f GiB of which %.2f GiB is free. See documentation for Memory Management",
			gigabytes(bytes), ordinal(visible, d), gigabytes(total), gigabytes(free))
	}
	return nil
}

// ordinal is the number that a process has for a device: its place among those it sees.
func ordinal(visible []Device, d Device) int {
	return max(0, slices.IndexFunc(visible, func(v Device) bool { return v.UUID == d.UUID }))
}

func gigabytes(bytes uint64) float64 { return float64(bytes) / (1 << 30) }
