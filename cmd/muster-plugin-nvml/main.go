//go:build linux && cgo

// Command muster-plugin-nvml looks at NVIDIA GPUs by the driver's own library, for a muster
// on the same host. It is a program of its own because the library needs cgo and may hang
// or crash. Without the library it starts all the same, and answers why it knows nothing.
package main

import (
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/nvml"
)

func main() { external.Serve(nvml.Source, nvml.Open("")) }
