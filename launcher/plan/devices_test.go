package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/plugins/gpu"
)

func setVisible(h facts.Host, value string, more ...string) facts.Host {
	h.Environ = map[string]string{"CUDA_VISIBLE_DEVICES": value}
	for i := 0; i+1 < len(more); i += 2 {
		h.Environ[more[i]] = more[i+1]
	}
	return h
}

func TestEveryGPUGetsARankByDefault(t *testing.T) {
	p := mustMake(t, on(t, 1, ""), machine(0, 8, nvswitch))
	wantGPUs(t, p, 0, 1, 2, 3, 4, 5, 6, 7)
	if p.Backend != "nccl" || !p.Hosts[0].Claimed || p.Hosts[0].Visibility != "host" {
		t.Errorf("plan %+v", p.Hosts[0])
	}
	e := env(t, p, 3, plan.Meeting{})
	var all []string
	for i := range 8 {
		all = append(all, uuid(0, i))
	}
	for name, value := range map[string]string{
		"CUDA_VISIBLE_DEVICES": strings.Join(all, ","), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LOCAL_RANK": "3", "MUSTER_DEVICE": uuid(0, 3),
	} {
		if e[name] != value {
			t.Errorf("rank 3 has %s=%q, want %q", name, e[name], value)
		}
	}
}

func TestAHostWithoutGPUsGetsOneRankThatSeesWhatItSees(t *testing.T) {
	h := host("m0", "10.0.0.1", 4)
	h.Devices = &facts.Devices{None: "no NVIDIA GPU"}
	p := mustMake(t, on(t, 1, ""), h)
	wantGPUs(t, p, -1)
	if _, set := env(t, p, 0, plan.Meeting{})["CUDA_VISIBLE_DEVICES"]; set || p.Backend != "gloo" {
		t.Errorf("CUDA_VISIBLE_DEVICES is set where there are no GPUs, or the backend is %s", p.Backend)
	}
	mustHold(t, refusal(t, on(t, 1, `per_host = "gpu"`), h), "m0 has no GPU: no NVIDIA GPU")
	mustHold(t, refusal(t, on(t, 2, ""), h, machine(1, 4, nvswitch)), "m0 has no GPU", "m1 has 4")
}

// A driver that does not answer must not turn a job into one on CPUs.
func TestGPUsOnTheBusThatDoNotAnswerAreNoReasonToRunWithoutThem(t *testing.T) {
	h := host("m0", "10.0.0.1", 4)
	h.Devices = &facts.Devices{None: "the NVIDIA driver is not running", Expected: "8 NVIDIA devices on the PCI bus"}
	mustHold(t, refusal(t, on(t, 1, ""), h), "8 NVIDIA devices on the PCI bus", "driver is not running", `devices = "none"`)
	p := mustMake(t, on(t, 1, "per_host = 2\ndevices = \"none\""), h)
	wantGPUs(t, p, -1, -1)
}

// Nobody looks at the devices of such a host, so nothing is known of them.
func TestRanksWithoutDevicesSeeNone(t *testing.T) {
	for _, h := range []facts.Host{machine(0, 4, nvswitch), host("m0", "10.0.0.1", 4)} {
		p := mustMake(t, on(t, 1, "per_host = 2\ndevices = \"none\""), h)
		if value, set := env(t, p, 1, plan.Meeting{})["CUDA_VISIBLE_DEVICES"]; !set || value != "" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q, set: %v", value, set)
		}
	}
}

func TestADriverThatShowsNoneOfTheGPUsOnTheBusIsNoReasonToRunWithoutThem(t *testing.T) {
	h := host("m0", "10.0.0.1", 4)
	h.Devices = &facts.Devices{Inventory: &gpu.Inventory{}, Expected: "4 NVIDIA devices on the PCI bus"}
	mustHold(t, refusal(t, on(t, 1, ""), h), "4 NVIDIA devices on the PCI bus", "nothing was found")
}

func TestGPUsThatTheDriverDoesNotShowAreWarnedOf(t *testing.T) {
	h := machine(0, 7, nvswitch)
	h.Devices.PCIDevices = 8
	mustHold(t, inWords(mustMake(t, on(t, 1, ""), h).Warnings), "m0: the driver shows 7 GPUs, but 8 are on the PCI bus")
	h.Container = "docker"
	if p := mustMake(t, on(t, 1, ""), h); len(p.Warnings) > 0 {
		t.Errorf("a container was given 7: %v", p.Warnings)
	}
}

// A number for all hosts says nothing of the one that lacks GPUs.
func TestAHostWithoutGPUsAmongOthersIsSaid(t *testing.T) {
	h := host("m0", "10.0.0.1", 4)
	h.Devices = &facts.Devices{None: "no NVIDIA GPU"}
	p := mustMake(t, on(t, 2, "per_host = 2"), h, machine(1, 2, nvswitch))
	mustHold(t, inWords(p.Warnings), "m0 has no GPU: no NVIDIA GPU; its 2 ranks use none, while m1 has 2")
	if p.Backend != "nccl" {
		t.Errorf("backend %s", p.Backend)
	}
	mustHold(t, refusal(t, on(t, 1, "backend = \"nccl\""), h), "m0 has no GPU", "backend = \"nccl\" needs one")
}

func TestMoreRanksThanVisibleGPUsAreRefusedWithBothNumbers(t *testing.T) {
	h := setVisible(machine(0, 8, nvswitch), "2,3")
	mustHold(t, refusal(t, on(t, 1, "per_host = 4"), h), "4 ranks asked", "2 GPUs visible there", "CUDA_VISIBLE_DEVICES=2,3")
	p := mustMake(t, on(t, 1, "per_host = 2"), h)
	wantGPUs(t, p, 2, 3)
	if got := env(t, p, 1, plan.Meeting{})["LOCAL_RANK"]; got != "1" {
		t.Errorf("LOCAL_RANK is %s", got)
	}
	if got := visible(t, p, 0); got != uuid(0, 2)+","+uuid(0, 3) {
		t.Errorf("visible: %s", got)
	}
}

func TestTheHostsVisibleDevicesRestrictAndOrder(t *testing.T) {
	for value, want := range map[string][]int{
		"0,2": {0, 2}, "0,1,6,7": {0, 1, 6, 7}, "2,0": {2, 0}, " 3 , 1": {3, 1},
		uuid(0, 5): {5}, "GPU-5": {5}, "gpu-6,GPU-2": {6, 2}, "0,-1,1": {0}, "1,NoDevFiles,2": {1},
	} {
		p := mustMake(t, on(t, 1, ""), setVisible(machine(0, 8, nvswitch), value))
		if got := gpusOf(p); !slices.Equal(got, want) {
			t.Errorf("%q gives GPUs %v, want %v", value, got, want)
		}
		mustHold(t, inWords(p.Notes), "CUDA_VISIBLE_DEVICES="+value+" is set on m0")
	}
}

func TestVisibleDevicesThatCannotBeMeantAreExplained(t *testing.T) {
	same := machine(0, 4, nvswitch)
	for i := range same.Devices.Inventory.GPUs[:2] {
		same.Devices.Inventory.GPUs[i].UUID = []string{"GPU-8932f937-0000", "GPU-8932f9aa-0000"}[i]
	}
	for value, want := range map[string][]string{
		"GPU-8932f9":     {`"GPU-8932f9" is ambiguous`, "GPUs 0 (GPU-8932f937-0000) and 1 (GPU-8932f9aa-0000)"},
		"0,GPU-8932f937": {"numbers and UUIDs are mixed"},
		"1,1":            {"GPU 1 is named twice"},
		"4,5":            {"there is no GPU 4", "there are 4, 0 to 3"},
		"":               {"no GPU may be used there"},
		"none":           {"no GPU may be used there"},
		"GPU-ffff":       {"there is no GPU GPU-ffff"},
	} {
		mustHold(t, refusal(t, on(t, 1, ""), setVisible(same, value)), want...)
	}
	p := mustMake(t, on(t, 1, ""), setVisible(same, "GPU-8932f93"))
	wantGPUs(t, p, 0)
}

func TestAListThatTheHostForbidsIsRefusedNotDropped(t *testing.T) {
	h := setVisible(machine(0, 4, nvswitch), "0,2")
	mustHold(t, refusal(t, on(t, 1, "devices = [1, 2]"), h), "GPU 1 is not among the devices that CUDA_VISIBLE_DEVICES=0,2 allows there", "job.hcl:")
	wantGPUs(t, mustMake(t, on(t, 1, "devices = [2, 0]"), h), 2, 0)
}

func TestTheHostsOrderIsKeptWithGroupsAndAmongMIGDevices(t *testing.T) {
	for _, ranks := range []string{"groups = { tensor = 2 }", "per_host = 4\ngroups = { tensor = 2 }"} {
		wantGPUs(t, mustMake(t, on(t, 1, ranks), setVisible(machine(0, 8, halves), "6,0,2,4")), 6, 0, 2, 4)
	}
	second, first := "MIG-488f0000-1111-5222-8333-444455556666", "MIG-377e0000-1111-5222-8333-444455556666"
	p := mustMake(t, on(t, 1, ""), setVisible(partitioned(), second+","+first))
	if got := []string{visible(t, p, 0), visible(t, p, 1)}; !slices.Equal(got, []string{second, first}) {
		t.Errorf("ranks see %v", got)
	}
}

func TestARefusalSaysEachThingOnce(t *testing.T) {
	for _, why := range []string{
		refusal(t, on(t, 1, "per_host = 3"), machine(0, 2, nvswitch)),
		refusal(t, on(t, 1, ""), setVisible(machine(0, 2, nvswitch), "0,GPU-1,0,GPU-0")),
		refusal(t, on(t, 2, ""), machine(0, 8, nvswitch), func() facts.Host { h := machine(0, 8, nvswitch); h.ID = "other"; return h }()),
	} {
		if strings.Contains(why, "\n") {
			t.Errorf("said in several lines:\n%s", why)
		}
	}
}

// A site's own plugin may know its devices by their numbers only.
func TestDevicesWithoutUUIDAndAddressAreToldApart(t *testing.T) {
	h := machine(0, 4, nvswitch)
	for i := range h.Devices.Inventory.GPUs {
		h.Devices.Inventory.GPUs[i].UUID, h.Devices.Inventory.GPUs[i].PCI = "", ""
	}
	h.Devices.Visibility = gpu.Visibility{Variable: "HIP_VISIBLE_DEVICES", Names: "index"}
	p := mustMake(t, on(t, 1, ""), h)
	wantGPUs(t, p, 0, 1, 2, 3)
	if n := len(p.Before(0)); n != 4 {
		t.Errorf("before the start %d devices are told of", n)
	}
	wantGPUs(t, mustMake(t, on(t, 1, "devices = [2, 1]"), h), 2, 1)
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 3"), h), 0, 1, 2)
}

func TestNumbersWithGapsAreShownAsTheyAre(t *testing.T) {
	h := machine(0, 3, nvswitch)
	h.Devices.Inventory.GPUs[1].Index, h.Devices.Inventory.GPUs[2].Index = 2, 5
	h.Devices.Inventory.GPUs[2].MIG.Enabled = ptr(true)
	mustHold(t, refusal(t, on(t, 1, "devices = [1]"), h), "there is no GPU 1: there are GPUs 0,2,5 only")
	mustHold(t, refusal(t, on(t, 1, ""), h), "GPU 5 has MIG on and it has no instances")
}

func TestSlurmsNumbersOfTheWholeMachine(t *testing.T) {
	all := setVisible(machine(0, 8, nvswitch), "4,5", "SLURM_JOB_GPUS", "4,5")
	wantGPUs(t, mustMake(t, on(t, 1, ""), all), 4, 5)
	renumbered := setVisible(machine(0, 2, nvswitch), "0,1", "SLURM_JOB_GPUS", "4,5")
	wantGPUs(t, mustMake(t, on(t, 1, ""), renumbered), 0, 1)
	stale := setVisible(machine(0, 2, nvswitch), "4,5", "SLURM_JOB_GPUS", "4,5")
	mustHold(t, refusal(t, on(t, 1, ""), stale), "there is no GPU 4", "SLURM_JOB_GPUS=4,5", "begin at 0")
}

func TestOneOfManySlurmTasksUsesItsOwnGPU(t *testing.T) {
	h := setVisible(machine(0, 1, nvswitch), "0", "SLURM_NTASKS_PER_NODE", "8")
	p := mustMake(t, on(t, 1, ""), h)
	if got := env(t, p, 0, plan.Meeting{})["LOCAL_RANK"]; got != "0" {
		t.Errorf("LOCAL_RANK is %s with one device visible", got)
	}
	mustHold(t, inWords(p.Notes), "one of 8 Slurm tasks")
}

// What nvidia-smi calls 1, CUDA calls 0 where the faster card sits behind.
func TestMixedCardsAreNamedByUUIDAndCountedAsNvidiaSMIDoes(t *testing.T) {
	h := machine(0, 2, pcie)
	h.Devices.Inventory.GPUs[0].Name = "NVIDIA T400"
	p := mustMake(t, on(t, 1, "devices = [1]"), h)
	if got := visible(t, p, 0); got != uuid(0, 1) {
		t.Errorf("visible: %s", got)
	}
	p = mustMake(t, on(t, 1, "devices = [1]\ndevice_names = \"index\""), h)
	if e := env(t, p, 0, plan.Meeting{}); e["CUDA_VISIBLE_DEVICES"] != "1" || e["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID" {
		t.Errorf("by index: %s in order %s", e["CUDA_VISIBLE_DEVICES"], e["CUDA_DEVICE_ORDER"])
	}
	mustHold(t, inWords(mustMake(t, on(t, 1, ""), setVisible(h, "1")).Warnings), "its cards differ", "those of nvidia-smi")
	mustHold(t, refusal(t, on(t, 1, ""), setVisible(h, "1", "CUDA_DEVICE_ORDER", "FASTEST_FIRST")), "FASTEST_FIRST", "only CUDA knows")
	if p := mustMake(t, on(t, 1, ""), setVisible(h, "1", "CUDA_DEVICE_ORDER", "PCI_BUS_ID")); len(p.Warnings) > 0 {
		t.Errorf("warnings %v", p.Warnings)
	}
}

func TestOneGPUByTwoNamesIsFound(t *testing.T) {
	h := machine(0, 4, nvswitch)
	for _, list := range []string{`[0, "` + uuid(0, 0) + `"]`, `["00000000:10:00.0", 0]`, `["GPU-0", "10:00.0"]`} {
		mustHold(t, refusal(t, on(t, 1, "devices = "+list), h), "two ranks would share it", "job.hcl:")
	}
	mustHold(t, refusal(t, on(t, 1, "per_host = 8"), h), "8 ranks asked, but it has 4 GPUs")
	wantGPUs(t, mustMake(t, on(t, 1, `devices = ["GPU-3", 1, "0000:12:00.0"]`), h), 3, 1, 2)
}

func TestOneGPUOfTwoHostsIsFound(t *testing.T) {
	a, b := machine(0, 2, nvswitch), machine(1, 2, nvswitch)
	b.Devices.Inventory.GPUs[1].UUID = a.Devices.Inventory.GPUs[0].UUID
	mustHold(t, refusal(t, on(t, 2, ""), a, b), "GPU 1 of m1 and a device of m0 are the same", uuid(0, 0))
	mustMake(t, on(t, 2, "shared = true"), a, b)
}

func TestHostsWithDifferentNumbersOfGPUs(t *testing.T) {
	hosts := []facts.Host{machine(0, 4, nvswitch), machine(1, 1, nvswitch), machine(2, 8, nvswitch)}
	only := `host "m2" {
      ranks { devices = [2, 3] }
    }`
	p := mustMake(t, on(t, 3, "", only), hosts...)
	wantGPUs(t, p, 0, 1, 2, 3, 0, 2, 3)
	e := env(t, p, 6, plan.Meeting{})
	if e["WORLD_SIZE"] != "7" || e["LOCAL_WORLD_SIZE"] != "2" || e["LOCAL_RANK"] != "1" {
		t.Errorf("rank 6: %v", e)
	}
	mustHold(t, inWords(p.Notes), "different numbers of ranks: m0 4, m1 1, m2 2")
	mustHold(t, refusal(t, on(t, 3, "equal = true", only), hosts...), "m0 4, m1 1, m2 2", "equal = true forbids that")
}

func TestALostGPUDoesNotMakeTheWorldSmaller(t *testing.T) {
	h := machine(0, 4, nvswitch)
	h.Devices.Inventory.GPUs[2].State = gpu.StateLost
	mustHold(t, refusal(t, on(t, 1, ""), h), "GPU 2 is lost", "devices = [...]")
	mustHold(t, refusal(t, on(t, 1, "devices = [1, 2]"), h), "GPU 2 is lost")
	wantGPUs(t, mustMake(t, on(t, 1, "devices = 3"), h), 0, 1, 3)
	mustHold(t, refusal(t, on(t, 1, "devices = 4"), h), "only 3 of its 4 GPUs can be had", "GPU 2 is lost")
}

func TestAProcessMaySpreadOverSeveralGPUs(t *testing.T) {
	p := mustMake(t, on(t, 1, "per_host = 1\ndevices = [2, 0, 1]"), machine(0, 4, nvswitch))
	wantGPUs(t, p, 2)
	if got := visible(t, p, 0); got != uuid(0, 2)+","+uuid(0, 0)+","+uuid(0, 1) {
		t.Errorf("visible: %s", got)
	}
	wantGPUs(t, mustMake(t, on(t, 1, "per_host = 1\ndevices = 2"), machine(0, 4, nvswitch)), 0)
	h := machine(0, 4, nvswitch)
	for i := range h.Devices.Inventory.GPUs {
		h.Devices.Inventory.GPUs[i].ComputeMode = ptr("exclusive_process")
	}
	p = mustMake(t, on(t, 1, "per_host = 1\ndevices = [2, 0]"), h)
	if got := visible(t, p, 0); got != uuid(0, 2)+","+uuid(0, 0) {
		t.Errorf("in exclusive mode visible: %s", got)
	}
	p = mustMake(t, on(t, 1, "per_host = 2\ndevices = 4"), h)
	mustHold(t, inWords(p.Warnings), "a rank may touch another's GPU")
	if got := visible(t, p, 1); strings.Count(got, "GPU-") != 4 {
		t.Errorf("in exclusive mode two ranks share out %s", got)
	}
}
