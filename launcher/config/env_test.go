package config

import (
	"strings"
	"sync"
	"testing"
)

func evaluate(t *testing.T, text string) *Job {
	t.Helper()
	src := Source{Filename: "job.hcl", Text: []byte(text)}
	job, diags := src.Evaluate()
	if len(diags) > 0 {
		t.Fatal(printed(src, diags))
	}
	return job
}

func TestEnvErrorOfLaterRank(t *testing.T) {
	job := evaluate(t, `job "x" {
  command = ["x"]
  hosts "local" {}
  ranks { per_host = 3 }
  env = { A = ["a", "b"][rank.local] }
}`)
	if _, diags := job.EnvOf(0, RankScope{Local: 1}); len(diags) > 0 {
		t.Error(diags)
	}
	_, diags := job.EnvOf(0, RankScope{Local: 2})
	if len(diags) != 1 || diags[0].Subject.Start.Line != 5 {
		t.Errorf("got %v", diags)
	}
}

func TestEnvOfWithoutEnv(t *testing.T) {
	for _, job := range []*Job{{Hosts: []Host{{}}}, evaluate(t, "job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n}")} {
		if env, diags := job.EnvOf(0, RankScope{}); len(env) > 0 || len(diags) > 0 {
			t.Error(env, diags)
		}
		if _, diags := job.EnvOf(1, RankScope{}); !diags.HasErrors() {
			t.Error("no error for a host that is not there")
		}
	}
}

// TestEnvOfWorldSizeIsUnknownBefore: an expression that fails for the world size 0
// or 1 only is no error before the plan.
func TestEnvOfWorldSizeIsUnknownBefore(t *testing.T) {
	evaluate(t, `job "x" {
  command = ["x"]
  hosts "local" {}
  env = { A = 1 / (rank.world_size - 1), B = [for i in range(rank.world_size) : i][0] }
}`)
}

func TestEnvOfIsSafeForGoroutines(t *testing.T) {
	job := evaluate(t, `job "x" {
  command = ["x"]
  hosts "ssh" { names = ["a[1-8]"] }
  env = { A = join(",", [for i in range(rank.global) : format("%02d", i)]), B = "${1e-5}" }
}`)
	var group sync.WaitGroup
	for i := range job.Hosts {
		group.Go(func() {
			env, diags := job.EnvOf(i, RankScope{Global: i})
			if len(diags) > 0 || strings.Count(env[0].Value, ",") != max(i-1, 0) || env[1].Value != "1e-5" {
				t.Error(env, diags)
			}
		})
	}
	group.Wait()
}

func TestLongValuesAreRefused(t *testing.T) {
	long := strings.Repeat("x", 128<<10)
	src := Source{Filename: "job.hcl", Text: []byte("job \"x\" {\n hosts \"local\" {}\n command = [\"x\", \"" + long + "\"]\n env = { A = \"" + long + "\" }\n}")}
	_, diags := src.Evaluate()
	if len(diags) != 2 || diags[0].Summary != "Value too long" || diags[1].Summary != "Value too long" {
		t.Error(printed(src, diags))
	}
}

// TestArgsStayAsTheyAre: the words after -- are no HCL.
func TestArgsStayAsTheyAre(t *testing.T) {
	args := []string{"${HOME}", "", "--", "-n", "a b", "\x80"}
	src := Source{Filename: "job.hcl", Text: []byte("job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n}"), Args: args}
	job, diags := src.Evaluate()
	if len(diags) > 0 || strings.Join(job.Command, "|") != "x|"+strings.Join(args, "|") {
		t.Error(job, diags)
	}
}

func TestUndeclaredVar(t *testing.T) {
	src := Source{
		Filename: "job.hcl",
		Text:     []byte("variable \"config\" { default = 1 }\njob \"x\" {\n command = [\"x\", var.config]\n hosts \"local\" {}\n}"),
		Vars:     map[string]string{"confg": "x", "nothing": "y"},
	}
	_, diags := src.Evaluate()
	if len(diags) != 2 || !strings.Contains(diags[0].Detail, "Did you mean -var config=") || !strings.Contains(diags[1].Detail, "It declares config.") {
		t.Error(printed(src, diags))
	}
}
