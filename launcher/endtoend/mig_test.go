//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// partedMachines are hosts whose GPUs are cut by MIG; that called "newer" has a driver under
// which NCCL takes MIG devices.
var partedMachines = []struct {
	name  string
	looks func() *gpus.Scenario
}{
	{"two", gpus.MIGTwo},
	{"newer", func() *gpus.Scenario {
		s := gpus.MIGTwo()
		s.Driver, s.CUDA = "580.65.06", "13.0"
		return s
	}},
	{"bare", gpus.MIGBare},
}

var partedRoom room

func theParted(t *testing.T) *testbed.Bed {
	t.Helper()
	var names []string
	for _, m := range partedMachines {
		names = append(names, m.name)
	}
	return partedRoom.borrow(t, testbed.Options{Hosts: len(names), Names: names, Each: func(i int, h *testbed.HostOptions) {
		h.GPUs = onThisMachine(t, partedMachines[i].looks()).OwnCards(i)
	}})
}

// inParts are where the ranks of a job are planned to be, as "GPU.MIG device".
func (u *user) inParts(job string) (parts, uuids []string) {
	u.t.Helper()
	var p struct {
		Ranks []struct {
			GPU struct {
				Index int
				UUID  string
				MIG   *int
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("plan", job, "--json").exits(0).stdout), &p); err != nil {
		u.t.Fatal(err)
	}
	for _, r := range p.Ranks {
		if r.GPU.MIG == nil {
			u.t.Fatalf("a rank is on a whole GPU: %+v", p.Ranks)
		}
		parts, uuids = append(parts, fmt.Sprintf("%d.%d", r.GPU.Index, *r.GPU.MIG)), append(uuids, r.GPU.UUID)
	}
	return parts, uuids
}

func TestAProfileGivesEachRankItsOwnMIGDeviceOverBothGPUs(t *testing.T) {
	u := newUser(t, theParted(t))
	for ranks, want := range map[string]string{
		`devices = ["1g.10gb"]`:                       "0.1",
		`devices = ["3g.40gb", "1g.10gb"]`:            "0.0 1.1",
		`devices = ["1g.10gb", "1g.10gb"]`:            "0.1 1.1",
		`devices = ["1g.10gb", "1g.10gb", "1g.10gb"]`: "0.1 0.2 1.1",
		`devices = "1g.10gb"`:                         "0.1 0.2 1.1 1.2",
		"devices = \"3g.40gb\"\nper_host = \"gpu\"":   "0.0 1.0",
		"devices = 2":                                 "0.0 1.0",
	} {
		job := u.gpuJob([]string{"two"}, ranks+"\nbackend = \"gloo\"")
		planned, uuids := u.inParts(job)
		if got := strings.Join(planned, " "); got != want {
			t.Errorf("%s: planned on %s, want %s", ranks, got, want)
		}
		found := u.mustLandAsPlanned(job)
		for i, uuid := range uuids {
			if l := found[fmt.Sprintf("two:%d", i)]; l.UUID != uuid || !slices.Equal(l.Visible, []string{uuid}) {
				t.Errorf("%s: rank %d is on %s and sees %v, planned %s", ranks, i, l.UUID, l.Visible, uuid)
			}
		}
	}
}

func TestTheOldNameOfAMIGDeviceIsUnderstood(t *testing.T) {
	u := newUser(t, theParted(t))
	card := theParted(t).Host("two").GPUs().GPUs[1]
	instance := card.MIG.Instances[2]
	old := fmt.Sprintf("MIG-%s/%d/%d", card.UUID, *instance.GI, *instance.CI)
	found := u.mustLandAsPlanned(u.gpuJob([]string{"two"}, fmt.Sprintf("devices = [%q]", old)))
	if l := found["two:0"]; l.UUID != instance.UUID {
		t.Errorf("%s: the rank is on %s, want %s", old, l.UUID, instance.UUID)
	}
}

func TestALayoutThatIsNotThereIsExplainedAndNotMade(t *testing.T) {
	u := newUser(t, theParted(t))
	for _, test := range []struct {
		host, ranks string
		says        []string
	}{
		{"two", `devices = ["7g.80gb"]`, []string{"gpus.hcl:", "two has no MIG device of profile 7g.80gb", "2 of 3g.40gb, 4 of 1g.10gb", "muster never changes the layout", "nvidia-smi mig -i 0 -cgi 7g.80gb -C"}},
		{"two", `devices = ["1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"]`, []string{"5 MIG devices of profile 1g.10gb asked, but it has 4"}},
		{"two", `devices = [0]`, []string{"GPU 0 has MIG on", theParted(t).Host("two").GPUs().GPUs[0].MIG.Instances[0].UUID}},
		{"bare", "", []string{"GPU 1 has MIG on and it has no instances, and muster makes none", "nvidia-smi mig -i 1 -cgi"}},
		{"bare", `devices = "1g.10gb"`, []string{"its GPUs with MIG have no devices", "nvidia-smi mig -i 1 -cgi 1g.10gb -C"}},
	} {
		u.run("run", u.gpuJob([]string{test.host}, test.ranks+"\nbackend = \"gloo\"")).exits(75).says(test.says...)
	}
	u.mustLandAsPlanned(u.gpuJob([]string{"bare"}, "devices = [0]"))
	u.run("check", u.gpuJob([]string{"bare"}, "devices = [0]")).prints("MIG is switched on at the next reset")
}

func TestProbeShowsMIGDevicesByProfile(t *testing.T) {
	u := newUser(t, theParted(t))
	u.run("probe", "-H", "two,bare").exits(0).prints("0:0  3g.40gb", "1:2  1g.10gb", "GPUs 0-1: partitioned (MIG) into 3 devices: 1 of 3g.40gb, 2 of 1g.10gb",
		"GPU 1: partitioned (MIG), and it has no devices", "nvidia-smi mig -i 1 -lgip")
}

func TestNCCLBetweenMIGDevicesOfOneGPUHangsOnItsVersion(t *testing.T) {
	u := newUser(t, theParted(t))
	job := func(host, nccl, ranks string) string {
		return u.file("mig.hcl", fmt.Sprintf("job \"m\" {\n  command = [\"cudaworker\", \"-for\", \"100ms\"]\n  python = %q\n  hosts \"ssh\" {\n    names = [%q]\n  }\n  ranks {\n%s\n  }\n}\n",
			u.torchWith("2.9.0", nccl), host, ranks))
	}
	uuids := func(host string) string {
		card := theParted(t).Host(host).GPUs().GPUs[0]
		return fmt.Sprintf("devices = [%q, %q]", card.MIG.Instances[1].UUID, card.MIG.Instances[2].UUID)
	}
	const refuses = `before it refuses them ("Duplicate GPU detected")`
	u.run("run", job("two", "2.27.5", uuids("two"))).exits(75).says(refuses, "there is 2.27.5", `backend = "gloo"`)
	u.run("run", job("newer", "2.31.1", uuids("newer"))).exits(0)
	u.run("plan", job("newer", "2.31.1", uuids("newer")), "--env", "1").exits(0).prints("NCCL_MULTI_RANK_GPU_ENABLE")
	// One of each GPU is not refused, and not supported either.
	u.run("run", job("two", "2.27.5", `devices = ["1g.10gb", "1g.10gb"]`)).exits(0)
}

func TestARankOnAnotherMIGDeviceThanPlannedIsToldOf(t *testing.T) {
	u := newUser(t, theParted(t))
	card := theParted(t).Host("two").GPUs().GPUs[0]
	other := card.MIG.Instances[2].UUID
	path := u.file("astray.hcl", fmt.Sprintf("job \"a\" {\n  command = [\"cudaworker\", \"-for\", \"1h\", \"-device\", %q]\n  hosts \"ssh\" {\n    names = [\"two\"]\n  }\n  ranks { devices = [%q] }\n  check { wrong_gpu = \"stop\" }\n}\n",
		other, card.MIG.Instances[1].UUID))
	u.run("run", path).exits(75).says("rank 0 on two runs on MIG device 2 of GPU 0 (" + other + "), which the plan does not have; the plan gave it MIG device 1 of GPU 0")
}

// A daemon of MPS is started for one part, and its clients are on that part.
func TestMPSHasADaemonForEachMIGDevice(t *testing.T) {
	u := newUser(t, theParted(t))
	path := u.gpuJob([]string{"two"}, `devices = ["1g.10gb", "1g.10gb"]`, "mode = \"independent\"\n  mps {\n    ranks_per_gpu = 2\n    pinned_memory_limit = \"4GiB\"\n  }")
	_, uuids := u.inParts(path)
	found := landings(t, u.run("run", path).exits(0))
	if len(found) != 4 {
		t.Fatalf("%d ranks: %v", len(found), found)
	}
	for i, uuid := range uuids {
		if l := found[fmt.Sprintf("two:%d", i)]; l.UUID != uuid {
			t.Errorf("rank %d is on %s, planned %s", i, l.UUID, uuid)
		}
	}
	u.run("plan", u.gpuJob([]string{"two"}, `devices = ["1g.10gb"]`, "mode = \"independent\"\n  mps { ranks_per_gpu = 8 }")).exits(75).says("MPS takes 7 clients on MIG device 1 of GPU 0")
}
