package smi

import (
	"fmt"
	"os"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// modes are the names and numbers that nvidia-smi -c takes. EXCLUSIVE_THREAD, 1, was taken
// out of drivers long ago.
var modes = map[string]string{
	"0": "default", "DEFAULT": "default", "2": "prohibited", "PROHIBITED": "prohibited",
	"3": "exclusive_process", "EXCLUSIVE_PROCESS": "exclusive_process",
}

// setMode is nvidia-smi -c: for root only, and of the machine as it is now. The mode lasts
// until it is changed, or the scenario is.
func (m *machine) setMode(chosen []int, name string) int {
	mode, is := modes[strings.ToUpper(name)]
	if !is {
		fmt.Fprintf(m.out, "Invalid compute mode: %s\n", name)
		return exitBadArgument
	}
	unlock, err := gpus.LockState(m.folder)
	if err != nil {
		fmt.Fprintln(m.out, err)
		return exitOther
	}
	defer unlock()
	s, err := gpus.Read(m.folder)
	if err != nil {
		fmt.Fprint(m.out, couldNotCommunicate)
		return exitNoDriver
	}
	for _, i := range chosen {
		g := &s.GPUs[i]
		switch {
		case os.Geteuid() != 0:
			fmt.Fprintf(m.out, "Unable to set the compute mode for GPU %s: Insufficient Permissions\nTerminating early due to previous errors.\n", busID(g.PCI))
			return exitPermission
		case g.ComputeMode != nil && *g.ComputeMode == mode:
			fmt.Fprintf(m.out, "Compute mode is already set to %s for GPU %s.\n", strings.ToUpper(mode), busID(g.PCI))
			continue
		}
		g.ComputeMode = &mode
		fmt.Fprintf(m.out, "Set compute mode to %s for GPU %s.\n", strings.ToUpper(mode), busID(g.PCI))
	}
	if err := s.Write(m.folder); err != nil {
		fmt.Fprintln(m.out, err)
		return exitOther
	}
	fmt.Fprintln(m.out, "All done.")
	return exitOK
}
