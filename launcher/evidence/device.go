package evidence

import (
	"bytes"
	"slices"
)

// Phrases of allocators, drivers and libraries whose device is full or has failed. Package
// failure says what each means; here they only tell that a look at the devices is worthwhile.
var (
	AllocatorFull = []string{
		"CUDA out of memory. Tried to allocate", "HIP out of memory. Tried to allocate",
		"XPU out of memory. Tried to allocate",
	}
	ArenaFull = []string{ // JAX and TensorFlow
		"RESOURCE_EXHAUSTED: Out of memory", "RESOURCE_EXHAUSTED: Failed to allocate request for",
		"OOM when allocating tensor with shape",
	}
	DriverFull = []string{
		"CUDA error: out of memory", "CUDA driver error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY",
		"cudaErrorMemoryAllocation",
	}
	LibraryFull = []string{"CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"}
	ECCError    = []string{"uncorrectable ECC error encountered"}
	DeviceLost  = []string{"GPU is lost", "has fallen off the bus"}
	DeviceFault = []string{
		"an illegal memory access was encountered", "CUDA error: unspecified launch failure",
		"CUDA error: misaligned address", "an illegal instruction was encountered",
		"the launch timed out and was terminated", "CUDA error: hardware stack error",
	}
)

// deviceHints are what is common to errors of devices that no phrase names.
var deviceHints = []string{
	"out of memory", "cuda error", "cudaerror", "cuda_error", "unhandled cuda", "cublas_status", "cudnn_status",
	"ecc error", "off the bus", "nvml", "hip error", "hsa_status",
}

// ConcernsDevice reports whether a program's output says that a device may have had to do
// with its end.
func ConcernsDevice(output []byte) bool {
	output = bytes.ToLower(output)
	return slices.ContainsFunc(
		slices.Concat(AllocatorFull, ArenaFull, DriverFull, LibraryFull, ECCError, DeviceLost, DeviceFault,
			deviceHints),
		func(phrase string) bool { return bytes.Contains(output, bytes.ToLower([]byte(phrase))) })
}
