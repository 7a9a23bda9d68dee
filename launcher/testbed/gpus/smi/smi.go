// Package smi prints what nvidia-smi prints, from a scenario. The forms are those of
// public captures of drivers 535 to 595.
package smi

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/plugins/gpu"
)

// Exit statuses, from the manual page of nvidia-smi, section RETURN VALUE.
const (
	exitOK          = 0
	exitBadArgument = 2
	exitPermission  = 4
	exitNoDevice    = 6
	exitNoDriver    = 9
	exitNoLibrary   = 12
	exitGPULost     = 15
	exitOther       = 255
)

// machine is what is printed: the scenario and who holds memory now.
type machine struct {
	*gpus.Scenario
	folder string
	held   []gpus.Holding
	out    io.Writer
}

// Run answers the arguments and returns the exit status.
func Run(folder string, args []string, out io.Writer) int {
	s, err := gpus.Read(folder)
	if err != nil {
		fmt.Fprint(out, couldNotCommunicate)
		return exitNoDriver
	}
	for _, f := range s.Faults {
		if f.Function == gpus.Program {
			return fail(f)
		}
	}
	if status := refuse(s, out); status != exitOK {
		return status
	}
	held, err := gpus.Held(folder)
	if err != nil {
		fmt.Fprintln(out, err)
		return exitOther
	}
	m := &machine{Scenario: s, folder: folder, held: held, out: out}
	return m.run(args)
}

// fail does what a fault of the program wants done.
func fail(f gpus.Fault) int {
	switch f.Do {
	case "hang":
		time.Sleep(time.Duration(cmp.Or(f.Seconds, 60)) * time.Second)
	case "crash":
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSEGV) // Go ends with status 2 and a trace
	}
	return cmp.Or(f.Error, exitOther)
}

const couldNotCommunicate = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. " +
	"Make sure that the latest NVIDIA driver is installed and running.\n\n"

// refuse says why nothing is known, in the words of the real program.
func refuse(s *gpus.Scenario, out io.Writer) int {
	if s.NoLibrary {
		fmt.Fprintln(out, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.")
		fmt.Fprintln(out, "Please also try adding directory that contains libnvidia-ml.so to your system PATH.")
		return exitNoLibrary
	}
	switch s.Init {
	case gpus.InitDriverNotLoaded:
		fmt.Fprint(out, couldNotCommunicate)
		return exitNoDriver
	case gpus.InitMismatch:
		fmt.Fprintln(out, "Failed to initialize NVML: Driver/library version mismatch")
		return 18
	case gpus.InitNoPermission:
		fmt.Fprintln(out, "Failed to initialize NVML: Insufficient Permissions")
		return exitPermission
	case gpus.InitUnknown:
		fmt.Fprintln(out, "Failed to initialize NVML: Unknown Error")
		return exitOther
	}
	return exitOK
}

func (m *machine) run(args []string) int {
	chosen, rest, ok := m.choose(args)
	if !ok {
		fmt.Fprintln(m.out, "No devices were found")
		return exitNoDevice
	}
	if len(m.GPUs) == 0 {
		fmt.Fprintln(m.out, "No devices were found")
		return exitNoDevice
	}
	switch {
	case len(rest) == 0:
		return m.each(chosen, m.table)
	case slices.Contains(rest, "-q") && slices.Contains(rest, "-x"):
		return m.each(chosen, m.xml)
	case rest[0] == "-L" || rest[0] == "--list-gpus":
		return m.each(chosen, m.list)
	case rest[0] == "topo" && len(rest) > 1 && rest[1] == "-m":
		return m.each(chosen, m.topology)
	case rest[0] == "topo" && len(rest) > 2 && rest[1] == "-p2p":
		return m.each(chosen, m.p2p)
	case rest[0] == "nvlink" && len(rest) > 1 && (rest[1] == "-s" || rest[1] == "--status"):
		return m.each(chosen, m.nvlink)
	case rest[0] == "-c" && len(rest) == 2:
		return m.setMode(chosen, rest[1])
	case strings.HasPrefix(rest[0], "--compute-mode="):
		return m.setMode(chosen, strings.TrimPrefix(rest[0], "--compute-mode="))
	case strings.HasPrefix(rest[0], "--query-gpu="):
		return m.queryGPU(chosen, strings.TrimPrefix(rest[0], "--query-gpu="), rest[1:])
	case strings.HasPrefix(rest[0], "--query-compute-apps="):
		return m.queryApps(chosen, strings.TrimPrefix(rest[0], "--query-compute-apps="), rest[1:])
	}
	fmt.Fprintf(m.out, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n")
	return exitBadArgument
}

// choose takes "-i 0,1" out of the arguments: indices, UUIDs or PCI addresses.
func (m *machine) choose(args []string) (chosen []int, rest []string, ok bool) {
	wanted := ""
	for i := 0; i < len(args); i++ {
		if value, is := strings.CutPrefix(args[i], "--id="); is {
			wanted = value
		} else if args[i] == "-i" && i+1 < len(args) {
			i++
			wanted = args[i]
		} else {
			rest = append(rest, args[i])
		}
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		if wanted == "" || slices.ContainsFunc(strings.Split(wanted, ","), func(name string) bool {
			pci, _ := gpu.SysfsPCI(name)
			return name == fmt.Sprint(i) || name == g.UUID || pci == g.PCI
		}) {
			chosen = append(chosen, i)
		}
	}
	return chosen, rest, wanted == "" || len(chosen) > 0
}

// each prints of the GPUs that answer; lost ones are named before.
func (m *machine) each(chosen []int, print func([]int)) int {
	var alive []int
	for _, i := range chosen {
		if m.GPUs[i].State == gpu.StateLost {
			fmt.Fprintf(m.out, "Unable to determine the device handle for GPU%d: %s: GPU is lost.  Reboot the system to recover this GPU\n", i, busID(m.GPUs[i].PCI))
			continue
		}
		alive = append(alive, i)
	}
	print(alive)
	if len(alive) < len(chosen) {
		return exitGPULost
	}
	return exitOK
}

// busID is a PCI address as nvidia-smi writes it: 00000000:0F:00.0.
func busID(pci string) string { return "0000" + strings.ToUpper(pci) }

// list is nvidia-smi -L.
func (m *machine) list(chosen []int) {
	for _, i := range chosen {
		g := &m.GPUs[i]
		fmt.Fprintf(m.out, "GPU %d: %s (UUID: %s)\n", i, g.Name, g.UUID)
		for _, mig := range g.MIG.Instances {
			fmt.Fprintf(m.out, "  MIG %-11s Device %2d: (UUID: %s)\n", mig.Profile, mig.Index, mig.UUID)
		}
	}
}

// nvlink is nvidia-smi nvlink -s.
func (m *machine) nvlink(chosen []int) {
	for _, i := range chosen {
		g := &m.GPUs[i]
		fmt.Fprintf(m.out, "GPU %d: %s (UUID: %s)\n", i, g.Name, g.UUID)
		switch {
		case g.State == gpu.StateNeedsReset:
			fmt.Fprintln(m.out, "NVML: Unable to retrieve NVLink information: GPU requires reset")
		case g.MIG.Enabled != nil && *g.MIG.Enabled:
			fmt.Fprintln(m.out, "Nvlink queries are not supported for Devices in MIG mode")
		case g.Ports == nil:
			fmt.Fprintln(m.out, "Device does not have or support Nvlink")
		case !slices.ContainsFunc(g.Ports, func(p gpus.Port) bool { return p.Peer != "" }):
			fmt.Fprintln(m.out, "NVML: Unable to retrieve NVLink information as all links are inActive")
		default:
			m.ports(g)
		}
	}
}

func (m *machine) ports(g *gpus.GPU) {
	for link, port := range g.Ports {
		if port.Peer == "" {
			fmt.Fprintf(m.out, "\t Link %d: <inactive>\n", link)
			continue
		}
		speed := fmt.Sprintf("%d.%03d", g.PortSpeed/1000, g.PortSpeed%1000)
		fmt.Fprintf(m.out, "\t Link %d: %s GB/s\n", link, strings.TrimSuffix(speed, ".000"))
	}
}
