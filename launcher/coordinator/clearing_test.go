package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/plugins/gpu"
)

// gpuUUID is that of GPU i of a drill's host.
func gpuUUID(host, i int) string { return fmt.Sprintf("GPU-%d%d000000", host, i) }

// newGPUDrill is a run of two hosts with two GPUs each, of which the first has 1 MiB in use.
func newGPUDrill(t *testing.T, more ...string) *drill {
	t.Helper()
	job, diags := config.Source{Filename: "job.hcl", Text: []byte(`job "j" {
  command = ["true"]
  hosts "ssh" {
    names = ["a", "b"]
  }
` + strings.Join(more, "\n") + "\n}")}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var hosts []facts.Host
	for i := range 2 {
		d := &facts.Devices{Inventory: &gpu.Inventory{Source: "nvml", Links: [][]gpu.Link{{"X", "NV4"}, {"NV4", "X"}}}, Near: make([]facts.Near, 2), Islands: [][]int{{0, 1}}}
		for g := range 2 {
			d.Inventory.GPUs = append(d.Inventory.GPUs, gpu.GPU{Index: g, UUID: gpuUUID(i, g), PCI: fmt.Sprintf("0000:0%d:00.0", g+1), State: gpu.StateOK,
				Memory: gpu.Memory{Total: new(uint64(80 << 30)), Used: new(uint64(1 << 20))}, Processes: []gpu.Process{{PID: 77, Kind: "graphics"}}})
		}
		hosts = append(hosts, facts.Host{
			System: facts.System{ID: fmt.Sprint(i)},
			Network: facts.Network{NICs: []facts.NIC{
				{Name: "eth0", Up: true, Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}},
				{Name: "eth1", Up: true, Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}},
			}},
			Devices: d,
		})
	}
	p, problems := lint.Plan(job, hosts)
	if problems != nil {
		t.Fatal(problems)
	}
	return drillOf(t, job, p)
}

// looks are the looks that a host was asked for and has not answered in this drill yet.
func (d *drill) looks(host int) (numbers []int) {
	for _, a := range d.all {
		if a.Send != nil && a.Send.Host == host && a.Send.Command.Look != nil {
			numbers = append(numbers, a.Send.Command.Look.Number)
		}
	}
	return numbers
}

func (d *drill) answer(host int, s gpu.Usage) {
	d.t.Helper()
	asked := d.looks(host)
	if len(asked) == 0 {
		d.t.Fatalf("host %d was not asked", host)
	}
	d.news(host, message.Update{Usage: &message.DeviceUsage{Asked: asked[len(asked)-1], Usage: s}})
}

func (d *drill) finishes() (n int) {
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Finish != nil {
			n++
		}
	}
	return n
}

// ended brings a drill of four ranks to the end of its workers.
func (d *drill) workersEnded() {
	for host := range 2 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Port: 20000}})
	for rank := range 4 {
		d.news(rank/2, message.Update{Ended: &message.Ended{Rank: rank}})
	}
	d.next(run.Flushed{})
}

func TestARunEndsWhenItsDevicesAreEmpty(t *testing.T) {
	d := newGPUDrill(t)
	d.workersEnded()
	d.answer(0, gpu.Usage{Used: map[string]uint64{gpuUUID(0, 0): 1 << 20, gpuUUID(0, 1): 2 << 20}, Holders: []gpu.Holder{{UUID: gpuUUID(0, 0), PID: 77, Kind: "graphics"}}})
	d.answer(1, gpu.Usage{Used: map[string]uint64{gpuUUID(1, 0): 5 << 30}})
	if d.finishes() != 0 {
		t.Fatal("hosts end before their devices are empty")
	}
	d.tick(time.Second, 0, 1)
	if n := len(d.looks(1)); n != 2 {
		t.Fatalf("host 1 was asked %d times", n)
	}
	d.answer(1, gpu.Usage{Used: map[string]uint64{gpuUUID(1, 0): 1 << 20}})
	if d.finishes() != 2 || len(d.b.Record.Warnings) != 0 {
		t.Errorf("%d hosts were ended, warnings %v", d.finishes(), d.b.Record.Warnings)
	}
}

func TestWhoStillHoldsADeviceIsNamedAndTheRunEnds(t *testing.T) {
	d := newGPUDrill(t)
	d.workersEnded()
	d.answer(0, gpu.Usage{})
	answered := 0
	for range 12 {
		if asked := len(d.looks(1)); asked > answered {
			answered = asked
			d.answer(1, gpu.Usage{Holders: []gpu.Holder{{UUID: gpuUUID(1, 1), PID: 4711, Kind: "compute", User: "ann", Command: "python"}},
				Used: map[string]uint64{gpuUUID(1, 0): 3 << 30}})
		}
		d.tick(time.Second, 0, 1)
	}
	warnings := strings.Join(d.b.Record.Warnings, "\n")
	for _, part := range []string{"b: ", "GPU 1 is held by pid 4711 of ann (python)", "GPU 0 has 3.0 GiB more in use than before the run"} {
		if !strings.Contains(warnings, part) {
			t.Errorf("%q is not in %s", part, warnings)
		}
	}
	if d.finishes() != 2 {
		t.Error("the run does not end")
	}
}

func TestAHostThatDoesNotSayWhetherItsDevicesAreEmptyIsNotWaitedForForEver(t *testing.T) {
	d := newGPUDrill(t)
	d.workersEnded()
	d.answer(0, gpu.Usage{Error: "the driver hangs"})
	for range 16 {
		d.tick(time.Second, 0, 1)
	}
	if d.finishes() != 2 || len(d.b.Record.Warnings) != 2 {
		t.Errorf("%d hosts were ended, warnings %v", d.finishes(), d.b.Record.Warnings)
	}
}

func TestMemoryOfSharedDevicesIsWaitedForToo(t *testing.T) {
	d := newGPUDrill(t, "ranks {", "per_host = 4", "shared = true", "}")
	d.core.ClearAll(0)
	if asked := len(d.looks(0)) + len(d.looks(1)); asked != 0 || !d.core.Cleared() {
		t.Fatal("who is on shared devices need not be in the way")
	}
	for host := range 2 {
		d.join(host)
	}
	d.core.ClearAll(0)
	d.core.Clearing.WithOthers(d.core.Wait, 20*time.Second)
	d.all = append(d.all, d.b.Take()...)
	d.answer(0, gpu.Usage{})
	d.answer(1, gpu.Usage{Holders: []gpu.Holder{{UUID: gpuUUID(1, 1), PID: 4711, Kind: "compute", Bytes: new(uint64(30 << 30))}}})
	if d.core.Cleared() {
		t.Error("memory that others hold is not waited for")
	}
	d.tick(time.Second, 0, 1)
	d.core.Cleared() // looks again
	d.all = append(d.all, d.b.Take()...)
	d.answer(1, gpu.Usage{})
	if !d.core.Cleared() {
		t.Error("the memory is free")
	}
}

// The driver frees memory a moment after the end, and a backoff may be long: what was seen
// before it says nothing of the devices after it.
func TestDevicesAreLookedAtAgainDuringABackoff(t *testing.T) {
	held := gpu.Usage{Holders: []gpu.Holder{{UUID: gpuUUID(0, 0), PID: 4242}}}
	for name, mode := range map[string]string{"together": "", "alone": `mode = "independent"`} {
		d := newGPUDrill(t, mode, `restart {
    attempts = 3
    backoff  = "1m"
    on "exit" { env = { X = 1 } }
    on "exit" { env = { X = 2 } }
  }`)
		for host := range 2 {
			d.join(host)
			d.ready(host)
		}
		for attempt := range 2 {
			d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: attempt, Port: 20000}})
			d.ended(0, message.Ended{Attempt: attempt, Code: 4, Evidence: &evidence.Worker{}})
			if mode == "" {
				for rank := 1; rank < 4; rank++ {
					d.ended(rank, message.Ended{Attempt: attempt, Sent: "SIGTERM", Signal: "SIGTERM"})
				}
			}
			d.answer(0, held)
			if attempt == 0 { // the first restart is at once
				d.tick(time.Second, 0, 1)
				d.answer(0, gpu.Usage{})
				if mode == "" {
					d.answer(1, gpu.Usage{})
				}
			}
		}
		d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: 2, Port: 20000}})
		asked := len(d.looks(0))
		d.tick(20*time.Second, 0, 1)
		if n := len(d.looks(0)); n != asked+1 {
			t.Errorf("%s: asked %d times within the backoff", name, n-asked)
		}
		d.answer(0, gpu.Usage{})
		if mode == "" {
			d.answer(1, gpu.Usage{})
		}
		d.tick(25*time.Second, 0, 1)
		d.tick(25*time.Second, 0, 1)
		if len(d.b.Record.Warnings) != 0 || d.b.Ranks[0].Attempt != 2 || d.b.Phase != run.Running {
			t.Errorf("%s: attempt %d, phase %d, warnings %q", name, d.b.Ranks[0].Attempt, d.b.Phase, d.b.Record.Warnings)
		}
	}
}
