//go:build linux

package endtoend

import (
	"os"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func TestTheMachineThatOneSitsAtDoesNotHideGPUsOfOthers(t *testing.T) {
	u := newUser(t, theMachines(t))
	u.env = []string{"CUDA_VISIBLE_DEVICES=0"}
	path := u.gpuJob([]string{"l40s"}, "")
	if found := landings(t, u.run("run", path).exits(0).says("CUDA_VISIBLE_DEVICES=0 of this machine is not sent to the hosts")); len(found) != 4 {
		t.Errorf("%d ranks", len(found))
	}
}

func TestWhatAHostsEnvironmentAllowsIsUsed(t *testing.T) {
	bed := ownBed(t, testbed.Options{GPUs: onThisMachine(t, gpus.L40S()), SSHDConfig: []string{"SetEnv CUDA_VISIBLE_DEVICES=2,0"}})
	u := newUser(t, bed)
	found := u.mustLandAsPlanned(u.gpuJob([]string{"node1"}, ""))
	if found["node1:0"].Index != 2 || found["node1:1"].Index != 0 || len(found) != 2 {
		t.Errorf("ranks are at %+v", found)
	}
	u.run("run", u.gpuJob([]string{"node1"}, "per_host = 4")).exits(75).says("4 ranks asked", "2 GPUs visible there", "CUDA_VISIBLE_DEVICES=2,0")
	u.run("run", u.gpuJob([]string{"node1"}, "devices = [1]")).exits(75).says("GPU 1 is not among the devices")
}

func TestASavedPlanRunsOnlyWhileTheHostsAreTheSame(t *testing.T) {
	bed := ownBed(t, testbed.Options{GPUs: onThisMachine(t, gpus.L40S())})
	u := newUser(t, bed)
	path, saved := u.gpuJob([]string{"node1"}, ""), u.path("plan.json")
	u.run("plan", path, "--save", saved).exits(0).says("--plan " + saved)
	if err := os.Remove(path); err != nil { // the plan has all of it
		t.Fatal(err)
	}
	if found := landings(t, u.run("run", "--plan", saved).exits(0)); len(found) != 4 {
		t.Errorf("%d ranks", len(found))
	}
	u.run("run", "--plan", saved, "-var", "x=y").exits(64).says("takes no others")
	swapped := onThisMachine(t, gpus.L40S())
	swapped.GPUs[2].UUID = "GPU-00000000-dead-beef-0000-000000000000"
	if err := bed.Hosts[0].SetGPUs(swapped); err != nil {
		t.Fatal(err)
	}
	u.run("run", "--plan", saved).exits(75).says("not as they were", "rank 2 (node1): device GPU-00000000-dead", "nothing was started")
	u.run("run", "--plan", u.file("empty.json", "{}")).exits(78).says("no saved plan")
}

func TestALocalRunUsesTheGPUsOfItsOwnMachine(t *testing.T) {
	u := newUser(t, theMachines(t)).sittingAt("l40s")
	path := u.file("local.hcl", "job \"l\" {\n  command = [\"cudaworker\", \"-for\", \"100ms\"]\n  hosts \"local\" {}\n  ranks { devices = [3, 0] }\n}\n")
	found := landings(t, u.run("run", path, "--no-check").exits(0))
	if found["localhost:0"].Index != 3 || found["localhost:1"].Index != 0 {
		t.Errorf("ranks are at %+v", found)
	}
	u.run("probe").exits(0).prints("by nvml")
	// On this machine its own environment is the user's.
	u.env = []string{"CUDA_VISIBLE_DEVICES=1,2"}
	u.run("run", path, "--no-check").exits(75).says("GPU 3 is not among the devices that CUDA_VISIBLE_DEVICES=1,2 allows")
}
