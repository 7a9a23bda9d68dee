// Command nvidia-smi prints what the real one would print on the machine of a scenario.
package main

import (
	"os"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/smi"
)

func main() { os.Exit(smi.Run(gpus.Here(), os.Args[1:], os.Stdout)) }
