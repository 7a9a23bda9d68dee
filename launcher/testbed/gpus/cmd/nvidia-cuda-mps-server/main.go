//go:build linux

// Command nvidia-cuda-mps-server is the server of MPS on the machine of a scenario;
// nvidia-cuda-mps-control starts it.
package main

import (
	"os"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/mps"
)

func main() { os.Exit(mps.Server(gpus.Here(), os.Stderr)) }
