package config

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/failure/restart"
)

func restartJob(t *testing.T, block string) *Job {
	t.Helper()
	src := Source{Filename: "job.hcl", Text: []byte("job \"x\" {\n  command = [\"a\"]\n  hosts \"ssh\" {\n    names = [\"h1\", \"h2\"]\n  }\n" +
		"  env = { M = \"8\", GONE = \"1\", LOCAL = rank.local }\n" + block + "\n}\n")}
	job, diags := src.Evaluate()
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	return job
}

func TestWithoutARestartBlockThereAreNoRules(t *testing.T) {
	if r := restartJob(t, "").Restart; r != nil || r.Rules() != nil {
		t.Errorf("%+v", r)
	}
}

func TestAnEmptyRestartBlockHasDefaults(t *testing.T) {
	got := restartJob(t, "restart {}").Restart.Rules()
	if got.Attempts != 3 || got.Within != 0 || got.Backoff != 10 || got.HealthyAfter != 600 || len(got.On) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRulesAreWhatTheBlockSays(t *testing.T) {
	r := restartJob(t, `restart {
    within = "90s"
    on "oom" {}
    on "oom.foreign_process" { wait_memory = "2m" }
    on "exit" {
      attempts = 0
    }
    on "crash" {
      env  = { M = 4, LOCAL = "r${rank.local}", GONE = null }
      args = ["--small", 3]
      nccl { p2p_level = "NVL" }
      allocator { max_split_size = "64MiB" }
    }
  }`).Restart
	if r.Within != 90*time.Second {
		t.Errorf("%+v", r)
	}
	got := r.Rules().On
	for i, want := range []struct {
		attempts int
		wait     float64
	}{{restart.Unset, restart.Unset}, {restart.Unset, 120}, {0, restart.Unset}, {restart.Unset, restart.Unset}} {
		if got[i].Attempts != want.attempts || got[i].WaitMemory != want.wait {
			t.Errorf("rule %d is %+v", i, got[i])
		}
	}
	want := map[string]string{
		"M": "4", "LOCAL": "(by rank)", "GONE": "(not set)", "args": "--small 3", "nccl.p2p_level": "NVL", "allocator.max_split_size": "64MiB",
	}
	for name, value := range want {
		if got[3].Settings[name] != value {
			t.Errorf("%s is %q, want %q", name, got[3].Settings[name], value)
		}
	}
	if len(got[3].Settings) != len(want) || got[0].Settings != nil {
		t.Errorf("settings %v, %v", got[3].Settings, got[0].Settings)
	}
}

func TestRulesInForceWinOverEnv(t *testing.T) {
	job := restartJob(t, `restart {
    on "exit" {
      env = { M = 4, GONE = null, NEW = "n${rank.global}" }
    }
    on "crash" {
      env = { M = 2 }
    }
  }`)
	for want, rules := range map[string][]int{
		"GONE=1 LOCAL=1 M=8":       nil,
		"LOCAL=1 M=4 NEW=n3":       {0},
		"LOCAL=1 M=2 NEW=n3":       {0, 1},
		"GONE=1 LOCAL=1 M=2":       {1},
		"LOCAL=1 M=4 NEW=n3 again": {1, 0},
	} {
		vars, diags := job.EnvUnder(rules, 1, RankScope{Global: 3, Local: 1, WorldSize: 4, HostName: "h2", HostIndex: 1})
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		var got []string
		for _, v := range vars {
			got = append(got, v.Name+"="+v.Value)
		}
		if strings.Join(got, " ") != strings.TrimSuffix(want, " again") {
			t.Errorf("%v: %v, want %s", rules, got, want)
		}
	}
}

func TestAnUnknownClassIsAnsweredWithTheNearestOne(t *testing.T) {
	for name, want := range map[string]string{
		"oom.capasity": "oom.capacity", "fragmentation": "oom.fragmentation", "oom": "", "gpu.xid.63": "", "host-lost": "host.lost", "OOM": "oom", "usererror": "user_error",
	} {
		_, diags := Source{Filename: "j", Text: []byte("job \"x\" {\n command = [\"a\"]\n hosts \"local\" {}\n restart {\n on \"" + name + "\" { attempts = 1 }\n }\n}\n")}.Evaluate()
		if want == "" {
			if diags.HasErrors() {
				t.Errorf("%s: %v", name, diags)
			}
			continue
		}
		if !diags.HasErrors() || !strings.Contains(diags[0].Detail, `Did you mean "`+want+`"?`) || !strings.Contains(diags[0].Detail, "oom.shm") {
			t.Errorf("%s: %v", name, diags)
		}
	}
}
