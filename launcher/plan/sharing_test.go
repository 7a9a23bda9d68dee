package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/plugins/gpu"
)

// busyMachine has 15 GB in use on GPUs 0 and 1, on 0 by a process of ann's, on 1 by one
// that does not show.
func busyMachine() facts.Host {
	h := machine(0, 4, nvswitch)
	for i := range 2 {
		h.Devices.Inventory.GPUs[i].Memory.Used = ptr(uint64(15e9))
	}
	h.Devices.Inventory.GPUs[0].Processes = []gpu.Process{{PID: 4711, Kind: "compute", Name: "python", Memory: ptr(uint64(15e9))}}
	h.Devices.Owners = map[int]string{4711: "ann"}
	return h
}

func TestBusyGPUsAreNotChosen(t *testing.T) {
	h := busyMachine()
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 2"), h), 2, 3)
	wantGPUs(t, mustMake(t, on(t, 1, "per_host = 2"), h), 2, 3)
	why := refusal(t, on(t, 1, "devices = 3"), h)
	mustHold(t, why, "3 GPUs asked, but only 2 of its 4 GPUs can be had", "GPU 0 is busy: 14.0 GiB in use by pid 4711 of ann (python)",
		"GPU 1 is busy: 14.0 GiB in use that no process here explains")
	mustHold(t, refusal(t, on(t, 1, ""), h), "all 4 GPUs are asked for", "GPU 0 is busy", "min_free")
}

func TestABusyGPUThatIsNamedIsUsedWithAWarning(t *testing.T) {
	p := mustMake(t, on(t, 1, "devices = [0, 2]"), busyMachine())
	wantGPUs(t, p, 0, 2)
	mustHold(t, inWords(p.Warnings), "GPU 0, which the job file names, is busy", "pid 4711")
	if p.Hosts[0].Claimed {
		t.Error("GPUs that were named are claimed")
	}
}

func TestEnoughFreeMemoryIsIdle(t *testing.T) {
	wantGPUs(t, mustMake(t, on(t, 1, "min_free = \"60GiB\""), busyMachine()), 0, 1, 2, 3)
	mustHold(t, refusal(t, on(t, 1, "min_free = \"70GiB\""), busyMachine()), "GPU 0 is busy: 65.5 GiB free of 80.0 GiB, less than min_free")
}

func TestADesktopsOwnMemoryIsNotBusy(t *testing.T) {
	h := machine(0, 1, nvswitch)
	h.Devices.Inventory.GPUs[0].Memory.Used = ptr(uint64(3 << 30))
	h.Devices.Inventory.GPUs[0].Processes = []gpu.Process{{PID: 1, Kind: "graphics", Memory: ptr(uint64(5 << 29))}}
	wantGPUs(t, mustMake(t, on(t, 1, ""), h), 0)
}

func TestGPUsThatAnotherRunHoldsAreBusy(t *testing.T) {
	h := machine(0, 3, nvswitch)
	h.Devices.Taken = map[string]string{uuid(0, 1): "llama-7f3a"}
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 2"), h), 0, 2)
	mustHold(t, refusal(t, on(t, 1, ""), h), "GPU 1 is busy: muster's run llama-7f3a holds it")
}

func TestSharedGPUsAreSpreadEvenlyAndSeenOneByOne(t *testing.T) {
	p := mustMake(t, on(t, 1, "per_host = 4\ndevices = [0, 1]\nshared = true"), machine(0, 2, nvswitch))
	wantGPUs(t, p, 0, 0, 1, 1)
	e := env(t, p, 1, plan.Meeting{})
	if e["LOCAL_RANK"] != "0" || e["MUSTER_LOCAL_RANK"] != "1" || e["CUDA_VISIBLE_DEVICES"] != uuid(0, 0) {
		t.Errorf("rank 1: %v", e)
	}
	mustHold(t, inWords(p.Notes), "ranks share devices")
	wantGPUs(t, mustMake(t, on(t, 1, "per_host = 3\nshared = true"), machine(0, 1, nvswitch)), 0, 0, 0)
}

func TestInExclusiveModeRanksSeeTheirOwnGPU(t *testing.T) {
	h := machine(0, 2, nvswitch)
	for i := range h.Devices.Inventory.GPUs {
		h.Devices.Inventory.GPUs[i].ComputeMode = ptr("exclusive_process")
	}
	p := mustMake(t, on(t, 1, ""), h)
	if got := visible(t, p, 1); p.Hosts[0].Visibility != "rank" || got != uuid(0, 1) {
		t.Errorf("visibility %s, rank 1 sees %s", p.Hosts[0].Visibility, got)
	}
	mustHold(t, inWords(p.Notes), "exclusive process", "MUSTER_LOCAL_RANK")
	p = mustMake(t, on(t, 1, "visibility = \"host\""), h)
	mustHold(t, inWords(p.Warnings), "may touch another's GPU")
	mustHold(t, refusal(t, on(t, 1, "per_host = 4\ndevices = [0, 1]\nshared = true"), h), "a second rank on it would fail", "MPS")
	h.Devices.Inventory.GPUs[1].ComputeMode = ptr("prohibited")
	mustHold(t, refusal(t, on(t, 1, ""), h), "GPU 1 is in compute mode prohibited")
}

// partitioned has MIG on GPU 0, with two instances, and a GPU 1 without.
func partitioned() facts.Host {
	h := machine(0, 2, nvswitch)
	h.Devices.Inventory.GPUs[0].MIG = gpu.MIG{Enabled: ptr(true), Instances: []gpu.MIGInstance{
		{Index: 0, UUID: "MIG-377e0000-1111-5222-8333-444455556666", Profile: "3g.40gb", GI: ptr(1), CI: ptr(0), Memory: ptr(uint64(40 << 30)), Used: ptr(uint64(10 << 20))},
		{Index: 1, UUID: "MIG-488f0000-1111-5222-8333-444455556666", Profile: "3g.40gb", GI: ptr(2), CI: ptr(0), Memory: ptr(uint64(40 << 30)), Used: ptr(uint64(10 << 20))},
	}}
	return h
}

func TestMIGInstancesAreNamedByTheirUUIDs(t *testing.T) {
	for _, name := range []string{"MIG-488f0000-1111-5222-8333-444455556666", "MIG-488f0000", "MIG-488F", "MIG-" + uuid(0, 0) + "/2/0", "MIG-" + uuid(0, 0)[:12] + "/2/0"} {
		p := mustMake(t, on(t, 1, `devices = ["`+name+`"]`), partitioned())
		if got := visible(t, p, 0); got != "MIG-488f0000-1111-5222-8333-444455556666" {
			t.Errorf("%s shows %s", name, got)
		}
	}
	why := refusal(t, on(t, 1, "devices = [0]"), partitioned())
	mustHold(t, why, "GPU 0 has MIG on", "MIG-377e0000-1111-5222-8333-444455556666 (3g.40gb)", "MIG-488f0000-1111-5222-8333-444455556666")
	mustHold(t, refusal(t, on(t, 1, `devices = ["MIG-99900000-1111-5222-8333-444455556666"]`), partitioned()), "no MIG device MIG-99900000-1111-5222-8333-444455556666")
	mustHold(t, refusal(t, on(t, 1, `devices = ["MIG-`+uuid(0, 0)+`/5/0"]`), partitioned()), "job.hcl:", "/5/0: there are MIG-377e0000-1111-5222-8333-444455556666 (3g.40gb), MIG-488f0000")
	mustHold(t, refusal(t, on(t, 1, `devices = ["MIG-488f"]`), machine(0, 2, nvswitch)), "no MIG device MIG-488f: MIG is on for none of its GPUs")
}

// muster's tables and nvidia-smi show the beginnings of UUIDs.
func TestABeginningThatSeveralMIGDevicesHaveIsRefusedWithTheirNames(t *testing.T) {
	h := cut("1g.10gb 1g.10gb", "1g.10gb")
	mustHold(t, refusal(t, on(t, 1, `devices = ["MIG-0"]`), h), "job.hcl:", `"MIG-0" is ambiguous`, migUUID(0, 0)+" (1g.10gb), "+migUUID(0, 1)+" (1g.10gb); write more of it")
	if got := onParts(mustMake(t, on(t, 1, `devices = ["MIG-01", "MIG-1"]`), h)); got != "0.1 1.0" {
		t.Error(got)
	}
	for _, instance := range h.Devices.Inventory.GPUs[0].MIG.Instances { // as drivers before 470 name them
		h.Devices.Inventory.GPUs[0].MIG.Instances[instance.Index].UUID = fmt.Sprintf("MIG-%s/%d/%d", uuid(0, 0), *instance.GI, *instance.CI)
	}
	mustHold(t, refusal(t, on(t, 1, `devices = ["MIG-`+uuid(0, 0)[:12]+`"]`), h), "is ambiguous", "/1/0 (1g.10gb), MIG-"+uuid(0, 0)+"/2/0")
}

// What the file asks for and a host cannot give is looked for in the file.
func TestWhatAHostRefusesOfTheFileIsSaidWithItsLine(t *testing.T) {
	exclusive := machine(0, 2, nvswitch)
	exclusive.Devices.Inventory.GPUs[0].ComputeMode = ptr("exclusive_process")
	both := `devices = ["MIG-377e", "MIG-488f"]`
	for _, c := range []struct {
		ranks string
		host  facts.Host
		line  int
	}{
		{both + "\nvisibility = \"host\"", partitioned(), 9},
		{both + "\ndevice_names = \"index\"", partitioned(), 9},
		{both + "\nper_host = 1", partitioned(), 9},
		{"per_host = 2\ndevices = 3", partitioned(), 9},
		{"per_host = 3", machine(0, 2, nvswitch), 8},
		{"devices = 3", machine(0, 2, nvswitch), 8},
		{"per_host = \"gpu\"", host("m0", "10.0.0.1", 4), 8},
		{"shared = true\ndevices = [0]\nper_host = 2", exclusive, 10},
	} {
		if why := refusal(t, on(t, 1, c.ranks), c.host); !strings.HasPrefix(why, fmt.Sprintf("job.hcl:%d,", c.line)) {
			t.Errorf("%s: want line %d: %s", c.ranks, c.line, why)
		}
	}
}

func TestARankGetsOneMIGInstance(t *testing.T) {
	p := mustMake(t, on(t, 1, ""), partitioned())
	var seen []string
	for rank := range p.WorldSize {
		seen = append(seen, visible(t, p, rank))
	}
	if want := []string{"MIG-377e0000-1111-5222-8333-444455556666", "MIG-488f0000-1111-5222-8333-444455556666", uuid(0, 1)}; !slices.Equal(seen, want) {
		t.Errorf("ranks see %v, want %v", seen, want)
	}
	mustHold(t, refusal(t, on(t, 1, "visibility = \"host\""), partitioned()), "a process can use one MIG device only")
	mustHold(t, refusal(t, on(t, 1, "device_names = \"index\""), partitioned()), "has its UUID only")
}

func TestAProcessIsNotGivenSeveralMIGDevices(t *testing.T) {
	both := `devices = ["MIG-377e0000-1111-5222-8333-444455556666", "MIG-488f0000-1111-5222-8333-444455556666"]`
	mustHold(t, refusal(t, on(t, 1, "per_host = 1\n"+both), partitioned()), "2 devices for 1 rank", "a process can use one MIG device only")
	mustHold(t, refusal(t, on(t, 1, "per_host = 2\ndevices = 3"), partitioned()), "3 devices for 2 ranks")
}

func TestANumberOfDevicesIsKeptAlsoWhereTheyAreShared(t *testing.T) {
	mustHold(t, refusal(t, on(t, 1, "devices = 4\nshared = true"), machine(0, 2, nvswitch)), "4 GPUs asked, but it has 2 GPUs", "per_host")
	h := machine(0, 1, nvswitch)
	h.Devices.Inventory.GPUs[0].State = gpu.StateLost
	mustHold(t, refusal(t, on(t, 1, "per_host = 2\nshared = true"), h), "only 0 of its 1 GPU can be had", "GPU 0 is lost")
}

func TestDevicesOfWhichNothingIsToldAreSaidToBe(t *testing.T) {
	h := busyMachine()
	h.Devices.Inventory.GPUs[3].Memory = gpu.Memory{}
	h.Devices.Inventory.GPUs[2].Processes = []gpu.Process{}
	p := mustMake(t, on(t, 1, "devices = 2"), h)
	mustHold(t, inWords(p.Notes), "whether somebody uses GPU 3 is not known")
}

func TestOldTorchIsShownNumbers(t *testing.T) {
	p := mustMake(t, on(t, 1, "devices = [1]"), machine(0, 2, nvswitch))
	old := plan.Meeting{Software: []facts.Software{{Torch: "1.13.1+cu117"}}}
	if got := env(t, p, 0, old)["CUDA_VISIBLE_DEVICES"]; got != "1" {
		t.Errorf("torch 1.13 is shown %s", got)
	}
	now := plan.Meeting{Software: []facts.Software{{Torch: "2.4.0+cu121"}}}
	if got := env(t, p, 0, now)["CUDA_VISIBLE_DEVICES"]; got != uuid(0, 1) {
		t.Errorf("torch 2.4 is shown %s", got)
	}
	h := machine(0, 2, nvswitch)
	h.Software = &facts.Software{Torch: "1.13.1+cu117"}
	if names, why := environ.DeviceNames(mustMake(t, on(t, 1, ""), h), 0); names != "index" || why != "torch 1.13.1+cu117 knows no UUIDs" {
		t.Errorf("devices are said to be named by %s (%s)", names, why)
	}
}

func TestASiteWithOtherHardwareNamesItsOwnVariable(t *testing.T) {
	h := machine(0, 2, nvswitch)
	h.Devices.Visibility = gpu.Visibility{Variable: "HIP_VISIBLE_DEVICES", Names: "index"}
	e := env(t, mustMake(t, on(t, 1, ""), h), 1, plan.Meeting{})
	if _, set := e["CUDA_VISIBLE_DEVICES"]; set || e["HIP_VISIBLE_DEVICES"] != "0,1" {
		t.Errorf("environment %v", e)
	}
}
