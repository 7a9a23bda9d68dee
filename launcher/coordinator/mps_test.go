package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/message/submission"
	"github.com/muster-dev/muster/plugins/gpu"
)

// gpuOf is the UUID of a host's only GPU.
func gpuOf(host int) string { return fmt.Sprintf("GPU-%d0000000-1111-2222-3333-444444444444", host) }

// sharingDrill is a run of three hosts with a GPU each that two ranks share by MPS.
func sharingDrill(t *testing.T, more string) *drill {
	t.Helper()
	job, diags := config.Source{Filename: "job.hcl", Text: []byte(`job "j" {
  command = ["true"]
  hosts "ssh" {
    names = ["a", "b", "c"]
  }
  mps {
    ranks_per_gpu       = 2
    pinned_memory_limit = ["3GiB", "1GiB"]
  }
` + more + `
}`)}.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	total, used := uint64(80<<30), uint64(0)
	var hosts []facts.Host
	for i := range 3 {
		hosts = append(hosts, facts.Host{
			System:  facts.System{ID: fmt.Sprint(i)},
			Network: facts.Network{NICs: []facts.NIC{{Name: "eth0", Up: true, Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}}, {Name: "eth1", Up: true, Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}}}},
			MPS:     &facts.MPS{Program: "/usr/bin/nvidia-cuda-mps-control"},
			Devices: &facts.Devices{Inventory: &gpu.Inventory{GPUs: []gpu.GPU{{
				UUID: gpuOf(i), PCI: "0000:0f:00.0", Name: "NVIDIA L40S", State: gpu.StateOK, Memory: gpu.Memory{Total: &total, Used: &used}, Processes: []gpu.Process{},
			}}}},
		})
	}
	p, problems := lint.Plan(job, hosts)
	if problems != nil {
		t.Fatal(problems)
	}
	d := drillOf(t, job, p)
	d.b.Checking = submission.CheckNone
	return d
}

// asked are the orders to run daemons, by host.
func (d *drill) asked() map[int]*message.Serve {
	found := map[int]*message.Serve{}
	for _, a := range d.all {
		if a.Send != nil && a.Send.Command.Serve != nil {
			found[a.Send.Host] = a.Send.Command.Serve
		}
	}
	return found
}

func (d *drill) serves(host int) {
	d.news(host, message.Update{Served: &message.Served{Number: d.asked()[host].Number, Folders: map[string]message.MPSFolders{gpuOf(host): {Pipe: fmt.Sprintf("/tmp/m/%d", host), Log: "/l", PID: 70 + host}}}})
}

func (d *drill) gather() {
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: d.b.Attempt, Port: 20000}})
}

func TestWorkersWaitForTheirDaemons(t *testing.T) {
	d := sharingDrill(t, "ranks {\n backend = \"gloo\"\n}")
	d.gather()
	if asked := d.asked(); len(asked) != 3 || asked[1].Program == "" || len(asked[1].Daemons) != 1 || asked[1].Daemons[0].Memory != 3<<30 || !slices.Equal(asked[1].Daemons[0].Locals, []int{0, 1}) {
		t.Fatalf("%+v", asked)
	}
	d.serves(0)
	d.serves(1)
	d.check("started", len(d.sent(isStart)), 0)
	d.serves(2)
	d.check("started", len(d.sent(isStart)), 3)
	_, start := d.starts()
	if e := start.Ranks[1].Env; e["CUDA_MPS_PIPE_DIRECTORY"] != "/tmp/m/2" || e["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] != "0=1G" || e["LOCAL_RANK"] != "0" {
		t.Errorf("%v", e)
	}
}

func TestADaemonThatCannotBeStartedRefusesTheRun(t *testing.T) {
	d := sharingDrill(t, "ranks {\n backend = \"gloo\"\n}")
	d.gather()
	d.serves(0)
	d.news(1, message.Update{Served: &message.Served{Number: d.asked()[1].Number, Error: "MPS for GPU 0: no", Tail: []byte("why"), Log: "/l"}})
	d.serves(2)
	r := d.end(0, 1, 2)
	if r.Exit != 75 || r.FirstCause == nil || !strings.Contains(r.FirstCause.Message, "b: MPS for GPU 0: no") || r.FirstCause.Tail != "why" {
		t.Errorf("%+v", r.FirstCause)
	}
	d.check("started", len(d.sent(isStart)), 0)
}

func TestALostDaemonIsTheCauseAndTheNextAttemptAsksForAnother(t *testing.T) {
	d := sharingDrill(t, "ranks {\n backend = \"gloo\"\n}\nrestart {\n attempts = 1\n backoff = \"0s\"\n}")
	d.gather()
	for host := range 3 {
		d.serves(host)
	}
	first := d.asked()[1].Number
	d.news(1, message.Update{MPSLost: &message.MPSLost{Device: gpuOf(1), Message: "the MPS daemon of GPU 0 (pid 71) has ended", Locals: []int{0, 1}, Lines: []string{"control.log: gone"}}})
	if d.b.Phase != run.Stopping || d.b.Lost == nil || d.b.Lost.Class != class.MPSLost {
		t.Fatalf("phase %v, lost %+v", d.b.Phase, d.b.Lost)
	}
	d.ended(2, message.Ended{Code: 1, Evidence: &evidence.Worker{Stderr: []byte("CUDA error: the remote procedural call between the MPS server and the MPS client failed\n")}})
	d.ended(3, message.Ended{Signal: "SIGKILL", Sent: "SIGKILL"})
	for _, rank := range []int{0, 1, 4, 5} {
		d.ended(rank, message.Ended{Signal: "SIGTERM", Sent: "SIGTERM"})
	}
	if d.b.Phase != run.Restarting || d.asked()[1].Number == first {
		t.Fatalf("phase %v, asked %+v", d.b.Phase, d.asked()[1])
	}
	if a := d.b.Record.Attempts[0]; a.Class != class.MPSLost || !strings.Contains(a.Message, "the MPS daemon of GPU 0") {
		t.Errorf("%+v", a)
	}
}

func TestAStaleAnswerServesNobody(t *testing.T) {
	d := sharingDrill(t, "ranks {\n backend = \"gloo\"\n}")
	d.gather()
	d.news(0, message.Update{Served: &message.Served{Number: 99}})
	if d.core.MPS.IsServed(0) {
		t.Error("an answer to nothing counts")
	}
}

func TestIndependentRanksOfOtherGPUsGoOnWhenADaemonIsLost(t *testing.T) {
	d := sharingDrill(t, "mode = \"independent\"")
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	for host := range 3 {
		d.serves(host)
	}
	d.check("started", len(d.sent(isStart)), 6)
	d.after(time.Second)
	d.news(1, message.Update{MPSLost: &message.MPSLost{Device: gpuOf(1), Fault: true, Message: "a fault", Locals: []int{0, 1}}})
	if d.b.Phase != run.Running || d.b.Lost != nil {
		t.Fatalf("phase %v, lost %+v", d.b.Phase, d.b.Lost)
	}
	d.ended(2, message.Ended{Signal: "SIGKILL", Sent: "SIGKILL"})
	if k := d.b.Ranks[2]; !d.isOver(2) || k.Past[0].Class != class.MPSFault {
		t.Errorf("%+v", k)
	}
	if d.isOver(0) {
		t.Error("a rank of another GPU was ended")
	}
}

func TestARankThatEndedWellBeforeItsDaemonDidIsDone(t *testing.T) {
	d := sharingDrill(t, "mode = \"independent\"")
	for host := range 3 {
		d.join(host)
		d.ready(host)
	}
	for host := range 3 {
		d.serves(host)
	}
	d.after(time.Second)
	d.news(1, message.Update{MPSLost: &message.MPSLost{Device: gpuOf(1), Message: "the daemon has ended", Locals: []int{0, 1}}})
	d.ended(2, message.Ended{Evidence: &evidence.Worker{}})
	if k := d.b.Ranks[2]; !d.isOver(2) || k.Past[0].Class != "" {
		t.Errorf("%+v", k)
	}
}
