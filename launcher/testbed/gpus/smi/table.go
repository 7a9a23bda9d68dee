package smi

import (
	"fmt"
	"strings"
	"time"
)

// table is nvidia-smi without arguments, for people: 91 columns wide.
func (m *machine) table(chosen []int) {
	rule := "+" + strings.Repeat("-", 89) + "+"
	fmt.Fprintln(m.out, time.Now().Format("Mon Jan _2 15:04:05 2006"))
	fmt.Fprintln(m.out, rule)
	fmt.Fprintf(m.out, "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", m.Driver, m.Driver, m.CUDA)
	fmt.Fprintln(m.out, "+-----------------------------------------+------------------------+----------------------+")
	fmt.Fprintln(m.out, "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
	fmt.Fprintln(m.out, "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
	fmt.Fprintln(m.out, "|                                         |                        |               MIG M. |")
	fmt.Fprintln(m.out, "|=========================================+========================+======================|")
	for _, i := range chosen {
		m.tableRow(i)
	}
	fmt.Fprintln(m.out)
	fmt.Fprintln(m.out, rule)
	fmt.Fprintf(m.out, "| %-87s |\n", "Processes:")
	fmt.Fprintf(m.out, "| %-87s |\n", " GPU   GI   CI              PID   Type   Process name                        GPU Memory")
	fmt.Fprintf(m.out, "| %-87s |\n", "       ID   ID                                                               Usage")
	fmt.Fprintln(m.out, "|"+strings.Repeat("=", 89)+"|")
	none := true
	for _, i := range chosen {
		for _, p := range m.GPUs[i].Holders(m.held) {
			none = false
			memory := "N/A"
			if p.Memory != nil {
				memory = megabytes(*p.Memory) + "MiB"
			}
			kind := map[string]string{"compute": "C", "graphics": "G", "both": "C+G", "mps": "M+C"}[p.Kind]
			fmt.Fprintf(m.out, "| %4d %4s %4s %16d %6s   %-30.30s %15s |\n", i, number(p.GI), number(p.CI), p.PID, kind, p.Name, memory)
		}
	}
	if none {
		fmt.Fprintf(m.out, "| %-87s |\n", " No running processes found")
	}
	fmt.Fprintln(m.out, rule)
}

func (m *machine) tableRow(i int) {
	g := &m.GPUs[i]
	ecc := "N/A"
	if g.ECC.Volatile != nil {
		ecc = fmt.Sprint(*g.ECC.Volatile)
	}
	persistence := either(g.Persistence, "On", "Off")
	memory := fmt.Sprintf("%sMiB / %6sMiB", megabytes(g.Used(m.held)), megabytes(*g.Memory.Total))
	utilization := percent(m.utilization(g).GPU)
	if utilization != "N/A" {
		utilization += "%"
	}
	fmt.Fprintf(m.out, "| %3d  %-27.27s %6s | %s Off | %20s |\n", i, g.Name, persistence, "  "+busID(g.PCI), ecc)
	fmt.Fprintf(m.out, "| N/A   31C    P0             61W /  350W | %22s | %7s %12s |\n", memory, utilization, strings.Replace(computeMode(g.ComputeMode), "Exclusive_", "E. ", 1))
	fmt.Fprintf(m.out, "| %-39s | %22s | %20s |\n", "", "", enabled(g.MIG.Enabled))
	fmt.Fprintln(m.out, "+-----------------------------------------+------------------------+----------------------+")
}
