package config

import (
	"slices"
	"testing"
	"time"
)

// What takes the place of the command has the job's hosts and environment, and none of what
// the job says of its command.
func TestWhatRunsInsteadOfTheCommandHasItsPlaceOnly(t *testing.T) {
	src := Source{Filename: "job.hcl", Text: []byte(`job "j" {
  command = ["python", "train.py"]
  program = "jax"
  setup   = "source venv/bin/activate"
  env     = { NCCL_DEBUG = "WARN" }
  hosts "ssh" {
    names = ["a", "b"]
  }
  restart { attempts = 3 }
  progress { folder = "ckpt" }
  stop { grace = "10m" }
  logs { show = "none" }
}`), Args: []string{"--lr", "1"}, Instead: []string{"python", "-c", "pass"}}
	job, diags := src.Evaluate()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if !slices.Equal(job.Command, src.Instead) || job.Restart != nil || job.Progress != (Progress{}) || job.Stop.Grace > 10*time.Second || !job.Logs.Show.Has(0) || job.Program != "" {
		t.Errorf("%+v", job)
	}
	vars, diags := job.EnvOf(1, RankScope{WorldSize: 2})
	if diags.HasErrors() || len(vars) != 1 || vars[0].Name != "NCCL_DEBUG" || job.Hosts[1].Setup == "" {
		t.Errorf("env %+v, setup %q, %v", vars, job.Hosts[1].Setup, diags)
	}
}
