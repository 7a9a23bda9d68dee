// Package nvml probes NVIDIA GPUs by NVML, the library behind nvidia-smi, through NVIDIA's
// go-nvml. It needs cgo and Linux; elsewhere the package is empty. It reports the same values as
// package nvidiasmi. It opens no CUDA context and starts no goroutine.
//
// A probe initialises NVML, reads and shuts it down: staying initialised would hold the devices
// open, so that neither the driver could be updated nor a GPU reset, and would show the GPUs and
// MIG layout of its start. Samples and watches are for while programs hold the GPUs anyway, and
// keep NVML initialised; a Prober that watches is best used for nothing else.
//
// A call of NVML may hang in the driver, and nothing in the process can end it: use a process of
// its own and kill that.
package nvml
