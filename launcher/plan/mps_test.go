package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// sharing is a job on one host whose ranks share GPUs by MPS.
func sharing(t *testing.T, ranks, block string) *config.Job {
	t.Helper()
	return job(t, `job "j" {
  command = ["true"]
  hosts "ssh" {
    names = ["h0"]
  }
  ranks {
    `+strings.ReplaceAll(ranks, "; ", "\n")+`
  }
  mps {
    `+strings.ReplaceAll(block, "; ", "\n")+`
  }
}`)
}

// withMPS is a machine whose driver brings MPS.
func withMPS(n int) facts.Host {
	h := machine(0, n, nvswitch)
	h.MPS = &facts.MPS{Program: "/usr/bin/nvidia-cuda-mps-control"}
	h.Devices.Inventory.Driver, h.Devices.Inventory.CUDA = ptr("550.54.15"), ptr("12.4")
	return h
}

func TestEachGPUGetsItsRanksAndTheirSharesInTheDaemonsWords(t *testing.T) {
	p := mustMake(t, sharing(t, `backend = "none"; devices = [3, 1]`, `ranks_per_gpu = 3; active_thread_percentage = [50, 25, 12.5]; pinned_memory_limit = ["20GiB", "10GiB", "1536MiB"]`), withMPS(4))
	wantGPUs(t, p, 3, 3, 3, 1, 1, 1)
	mustHold(t, inWords(p.Notes), "each rank sees its own device only", "MPS daemon of its own")
	folders := plan.Meeting{MPS: []map[string]plan.MPSFolders{{uuid(0, 3): {"/tmp/m/0", "/state/0"}, uuid(0, 1): {"/tmp/m/1", "/state/1"}}}}
	e := env(t, p, 5, folders)
	for name, want := range map[string]string{
		"CUDA_MPS_PIPE_DIRECTORY": "/tmp/m/1", "CUDA_MPS_LOG_DIRECTORY": "/state/1", "CUDA_VISIBLE_DEVICES": uuid(0, 1), "LOCAL_RANK": "0", "MUSTER_LOCAL_RANK": "5",
		// The GPU is index 1 of the host and 0 of its daemon.
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1536M",
	} {
		if e[name] != want {
			t.Errorf("%s is %q, not %q", name, e[name], want)
		}
	}
	vars, _ := environ.Of(p, 0, folders)
	for _, v := range vars {
		if strings.HasPrefix(v.Name, "CUDA_MPS_") && v.Source == "" {
			t.Errorf("%s has no source", v.Name)
		}
	}
	all := p.MPS(0)
	if len(all) != 2 || !slices.Equal(all[0].Ranks, []int{0, 1, 2}) || all[1].Threads != 50 || all[1].Memory != 20<<30 || all[1].Device.Index != 1 {
		t.Errorf("%+v", all)
	}
	if claims, alone := p.Claims(0); len(claims) != 2 || alone {
		t.Errorf("claims %v, alone %v", claims, alone)
	}
}

func TestRanksAreCountedByGPUs(t *testing.T) {
	for ranks, want := range map[string][]int{
		"":                            {0, 0, 1, 1, 2, 2, 3, 3},
		`per_host = "gpu"`:            {0, 0, 1, 1, 2, 2, 3, 3},
		"devices = 2":                 {0, 0, 1, 1},
		"per_host = 4":                {0, 0, 1, 1},
		"per_host = 4; devices = 2":   {0, 0, 1, 1},
		"devices = [2]; per_host = 2": {2, 2},
	} {
		p := mustMake(t, sharing(t, ranks+`; backend = "none"`, "ranks_per_gpu = 2"), withMPS(4))
		wantGPUs(t, p, want...)
	}
}

func TestNumbersAreThoseOfTheDaemon(t *testing.T) {
	job := sharing(t, `devices = [3]; backend = "none"; device_names = "index"`, `ranks_per_gpu = 2; pinned_memory_limit = "8GiB"`)
	if e := env(t, mustMake(t, job, withMPS(4)), 0, plan.Meeting{}); e["CUDA_VISIBLE_DEVICES"] != "0" {
		t.Errorf("its own daemon has one device, and the rank is shown %q", e["CUDA_VISIBLE_DEVICES"])
	}
	there := sharing(t, `devices = [3]; backend = "none"; device_names = "index"`, `ranks_per_gpu = 2; pinned_memory_limit = "8GiB"; daemon = "existing"`)
	h := withMPS(4)
	h.MPS.Daemons = []facts.MPSDaemon{{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps", Devices: ptr("1,3")}}
	e := env(t, mustMake(t, there, h), 0, plan.Meeting{})
	if e["CUDA_VISIBLE_DEVICES"] != "1" || e["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] != "1=8G" || e["CUDA_MPS_PIPE_DIRECTORY"] != "/tmp/nvidia-mps" {
		t.Errorf("%v", e)
	}
	h.MPS.Daemons[0] = facts.MPSDaemon{PID: 7, User: "root"}
	mustHold(t, refusal(t, there, h), "only its user can see")
	h.MPS.Daemons[0] = facts.MPSDaemon{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps", Devices: ptr("1")}
	mustHold(t, refusal(t, there, h), "does not serve GPU 3")
}

func TestWhatMPSCannotDoIsRefusedBeforeTheStart(t *testing.T) {
	none := `backend = "none"`
	for name, c := range map[string]struct {
		ranks, block string
		change       func(h *facts.Host)
		want         []string
	}{
		"more clients than it takes": {none + "; devices = 1", "ranks_per_gpu = 50", nil, []string{"takes 48 clients on GPU 0", "at most 48"}},
		"an old GPU takes fewer": {none + "; devices = 1", "ranks_per_gpu = 20", func(h *facts.Host) { h.Devices.Inventory.GPUs[0].Name = "Tesla P100-SXM2-16GB" },
			[]string{"takes 16 clients"}},
		"shares on an old GPU": {none + "; devices = 1", "ranks_per_gpu = 2; active_thread_percentage = 50", func(h *facts.Host) { h.Devices.Inventory.GPUs[0].Name = "Tesla P100-SXM2-16GB" },
			[]string{"from before Volta"}},
		"a limit beyond the card": {none, `ranks_per_gpu = 2; pinned_memory_limit = "81GiB"`, nil, []string{"81.0 GiB is more than GPU 0 has"}},
		"no program":              {none, "ranks_per_gpu = 2", func(h *facts.Host) { h.MPS.Program = "" }, []string{"no nvidia-cuda-mps-control"}},
		"another's daemon": {none, "ranks_per_gpu = 2", func(h *facts.Host) {
			h.MPS.Daemons = []facts.MPSDaemon{{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps"}}
		}, []string{"MPS daemon of ann (pid 7, in /tmp/nvidia-mps) covers GPU 0 already", `daemon = "existing"`}},
		"a daemon that nobody reaches": {none, "ranks_per_gpu = 2", func(h *facts.Host) {
			h.MPS.Daemons = []facts.MPSDaemon{{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps", Lost: true}}
		}, []string{"folder has been removed", "kill 7"}},
		"nobody's daemon": {none, `ranks_per_gpu = 2; daemon = "existing"`, nil, []string{"no MPS daemon runs there in /tmp/nvidia-mps"}},
		"sockets of one that has ended": {none, `ranks_per_gpu = 2; daemon = "existing"`, func(h *facts.Host) { h.MPS.Left = "/tmp/nvidia-mps, of ann" },
			[]string{"/tmp/nvidia-mps, of ann are the sockets of one that has ended"}},
		"no GPU": {none, "ranks_per_gpu = 2", func(h *facts.Host) { h.Devices = &facts.Devices{None: "none on the bus"} }, []string{"has no GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := withMPS(2)
			if c.change != nil {
				c.change(&h)
			}
			mustHold(t, refusal(t, sharing(t, c.ranks, c.block), h), c.want...)
		})
	}
}

func TestADaemonForOtherGPUsIsInNobodysWay(t *testing.T) {
	h := withMPS(2)
	h.MPS.Daemons = []facts.MPSDaemon{{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps", Devices: ptr(uuid(0, 1))}}
	p := mustMake(t, sharing(t, `devices = [0]; backend = "none"`, "ranks_per_gpu = 2"), h)
	wantGPUs(t, p, 0, 0)
	if len(p.Warnings) > 0 {
		t.Errorf("%v", p.Warnings)
	}
	h.MPS.Daemons[0] = facts.MPSDaemon{PID: 8, User: "root"}
	mustHold(t, inWords(mustMake(t, sharing(t, `devices = [0]; backend = "none"`, "ranks_per_gpu = 2"), h).Warnings), "only its user can see")
}

func TestWhatNCCLMakesOfSharedGPUsIsSaid(t *testing.T) {
	warned := func(ranks, block string, h facts.Host) string {
		return inWords(mustMake(t, sharing(t, ranks, block), h).Warnings)
	}
	mustHold(t, warned(`backend = "nccl"; devices = 1`, "ranks_per_gpu = 2", withMPS(2)), "NCCL takes one rank of a job per GPU", "2.30", `backend = "gloo"`)
	mustHold(t, warned(`backend = "nccl"; devices = 2`, "ranks_per_gpu = 1", withMPS(2)), "an MPS daemon each")
	mustHold(t, warned(`backend = "gloo"; devices = 2; groups = { tensor = 4 }`, "ranks_per_gpu = 2", withMPS(2)), "the tensor group of ranks 0-3 has ranks 0 and 1 on one GPU")
	for _, backend := range []string{"gloo", "none"} {
		if got := warned(`backend = "`+backend+`"; devices = 2`, "ranks_per_gpu = 2", withMPS(2)); got != "" {
			t.Errorf("%s: %s", backend, got)
		}
	}
	h := withMPS(1)
	h.Software = &facts.Software{NCCL: "2.30.3"}
	shared := job(t, "job \"j\" {\n command = [\"true\"]\n hosts \"ssh\" {\n names = [\"h0\"]\n }\n ranks {\n backend = \"nccl\"\n }\n mps {\n ranks_per_gpu = 2\n }\n env = { NCCL_MULTI_RANK_GPU_ENABLE = 1 }\n}")
	if got := inWords(mustMake(t, shared, h).Warnings); strings.Contains(got, "takes one rank") {
		t.Error(got)
	}
	h.Software.NCCL = "2.29.7"
	mustHold(t, inWords(mustMake(t, shared, h).Warnings), "takes one rank")
}

func TestADaemonThatNobodyAskedForIsSaid(t *testing.T) {
	h := withMPS(1)
	h.MPS.Daemons = []facts.MPSDaemon{{PID: 7, User: "ann", Told: true, Pipe: "/tmp/nvidia-mps"}}
	mustHold(t, inWords(mustMake(t, on(t, 1, ""), h).Warnings), "will be clients of the MPS daemon of ann")
	h.MPS.Daemons = nil
	h.Environ = map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}
	mustHold(t, inWords(mustMake(t, on(t, 1, ""), h).Warnings), "ranks run without MPS")
}

func TestSharingByTurnsIsAllowedAndItsPriceSaid(t *testing.T) {
	p := mustMake(t, on(t, 1, "per_host = 4\ndevices = [0, 1]\nshared = true\nbackend = \"none\""), machine(0, 2, nvswitch))
	mustHold(t, inWords(p.Warnings), "take turns", "mps { ranks_per_gpu")
}

func TestALimitThatTheHostSetsIsSaid(t *testing.T) {
	h := withMPS(1)
	h.Environ = map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}
	mustHold(t, inWords(mustMake(t, sharing(t, `backend = "none"`, "ranks_per_gpu = 2"), h).Warnings), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 is set there", "active_thread_percentage")
	if got := inWords(mustMake(t, sharing(t, `backend = "none"`, "ranks_per_gpu = 2; active_thread_percentage = 50"), h).Warnings); got != "" {
		t.Error(got)
	}
}
