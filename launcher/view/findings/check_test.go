package findings

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/device"
	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"
	"github.com/muster-dev/muster/plugins/gpu"

	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/report"
)

// twoMachines is a plan for eight GPUs on each of two machines.
func twoMachines() *plan.Plan {
	p := &plan.Plan{}
	for range 2 {
		var h plan.Host
		for i := range 8 {
			h.Devices = append(h.Devices, device.Device{ID: gpu.ID{UUID: fmt.Sprint("GPU-", i)}})
		}
		p.Hosts = append(p.Hosts, h)
	}
	return p
}

func printedBy(t *testing.T, show func(s *terminal.Screen)) []byte {
	t.Helper()
	var out bytes.Buffer
	show(&terminal.Screen{Out: terminal.Stream{W: &out}})
	return out.Bytes()
}

// onTwoMachines are findings of a job on two machines.
func onTwoMachines(t *testing.T, findings ...report.Finding) Checked {
	t.Helper()
	return Checked{Job: "llama", Plan: twoMachines(), Checks: len(codes.Names(codes.Before)), Findings: findings}
}

func ofGPU(code string, severity codes.Severity, host string, gpu, rank int, text, fix string) report.Finding {
	f := report.Finding{Code: code, Severity: severity, Host: host, GPU: &gpu, Rank: &rank, Fix: fix}
	f.Message = f.Where() + text
	return f
}

func badDay() []report.Finding {
	var all []report.Finding
	all = append(all, ofGPU(codes.GPULost, codes.Fail, "hgx02", 3, 11, "lost, fallen off the bus (0000:4b:00.0)", "the machine needs a reboot; until then leave it out"),
		report.Finding{Code: codes.NCCLDiffers, Severity: codes.Fail, Message: "hosts differ in NCCL: 2.20.5 on hgx01; 2.27.3 on hgx02", Fix: "install the same everywhere"},
		report.Finding{Code: codes.Unreachable, Severity: codes.Fail, Host: "hgx01", Fix: "a firewall is the usual reason",
			Message: "hgx01: none of its addresses is reached by every host\n  FROM   10.0.0.1 (eno1)\n  hgx02  no: connection refused"})
	for i := range 4 {
		all = append(all, ofGPU(codes.PCIeNarrow, codes.Warn, "hgx01", i, i, "PCIe link x8 of x16", "reseat the card"))
	}
	all = append(all, ofGPU(codes.GPUInUse, codes.Warn, "hgx01", 5, 5, "40.0 GiB in use: python\x1b[2J (pid 4242, bob, 40.0 GiB)", ""))
	rank, gpu := 3, 0
	all = append(all, report.Finding{Code: codes.ExtraGPU, Severity: codes.Warn, Host: "hgx01", GPU: &gpu, Rank: &rank,
		Message: "rank 3 on hgx01 opened GPU 0 (0000:1b:00.0), which is rank 0's: memory of it is taken (0.5 GiB)", Fix: "call torch.cuda.set_device(LOCAL_RANK) before the first CUDA call"})
	return append(all, report.Finding{Code: codes.HiddenProcess, Severity: codes.Info, Host: "hgx02", Message: "hgx02: muster runs in a container"})
}

func TestChecksAsPeopleReadThem(t *testing.T) {
	refused := Checked{Job: "llama", Findings: []report.Finding{{Code: "no_gpu", Severity: codes.Fail, Host: "hgx01", Message: "hgx01 has no GPU: nothing was found"}}}
	for name, c := range map[string]Checked{
		"well":    onTwoMachines(t),
		"broken":  onTwoMachines(t, badDay()...),
		"warned":  onTwoMachines(t, badDay()[3:7]...),
		"noted":   onTwoMachines(t, badDay()[9]),
		"refused": refused,
	} {
		viewtest.Compare(t, "check/"+name+".txt", printedBy(t, func(s *terminal.Screen) { Check(s, c) }))
	}
}

// In a terminal lines are broken between words, and colour is all that is added to them.
func TestChecksFitATerminal(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("word ", 60)
	c := onTwoMachines(t, ofGPU(codes.Throttled, codes.Warn, "hgx01", 1, 1, long, long))
	Check(&terminal.Screen{Out: terminal.Stream{W: &out, IsTerminal: true, HasColour: true}}, c)
	for line := range strings.Lines(out.String()) {
		if len(line) > 100 {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
	if !strings.Contains(out.String(), "\x1b[33m") {
		t.Errorf("%q", out.String())
	}
}

// The file is the contract of muster check --json, version 1: names and kinds of values
// stay, others may be added.
func TestChecksJSONIsAContract(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []Checked{onTwoMachines(t, badDay()[:4]...), onTwoMachines(t)} {
		if err := CheckJSON(&out, c); err != nil {
			t.Fatal(err)
		}
	}
	viewtest.Compare(t, "check/contract.json", out.Bytes())
	for want, severity := range map[string]codes.Severity{"fail": codes.Fail, "warn": codes.Warn, "pass": codes.Info} {
		out.Reset()
		if err := CheckJSON(&out, Checked{Findings: []report.Finding{{Severity: severity}}}); err != nil || !strings.Contains(out.String(), fmt.Sprintf("\"verdict\": %q", want)) {
			t.Errorf("%s: %v\n%s", severity, err, out.String())
		}
	}
}
