// Package nvml looks at NVIDIA GPUs by NVML, the library behind nvidia-smi, through
// NVIDIA's go-nvml. It needs cgo and Linux; elsewhere the package is empty. It tells the
// same values as package nvidiasmi. It opens no CUDA context, starts no goroutine and
// knows nothing of jobs; CPUs and NUMA nodes of a GPU are not taken from NVML.
//
// A probe initialises NVML, reads and shuts it down. One that stayed initialised would
// hold the devices open, so that the driver could be neither updated nor a GPU reset, and
// would see the GPUs that were there at its start: one that came back, or another MIG
// layout, shows after nvmlInit only. The price is what every nvidia-smi pays: without
// persistence mode and without another client the driver wakes the GPUs first, which
// takes seconds.
//
// A watch for events keeps NVML initialised for as long as it lasts, and holds the devices
// open with it; a Prober that watches is best asked for nothing else.
//
// A call of NVML may hang in the driver, and nothing in the process can end it. Whoever
// probes does so in a process of its own and kills that.
package nvml
