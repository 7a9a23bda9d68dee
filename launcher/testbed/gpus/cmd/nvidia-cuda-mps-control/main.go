//go:build linux

// Command nvidia-cuda-mps-control is the control daemon of MPS, and its front end, on the
// machine of a scenario.
package main

import (
	"os"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/mps"
)

func main() {
	os.Exit(mps.Control(gpus.Here(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
