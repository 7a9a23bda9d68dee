package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// job is a job file that was written, and what its ranks wait for.
type job struct {
	name string // of the files, without suffix
	path string
	stop string // ranks end when this file is there
}

// stayAtMost is how long a rank stays that nobody ends.
const stayAtMost = "50s"

// write writes a job of workers with these lines in its ranks block.
func (s *session) write(what string, ranks ...string) job {
	j := s.name(what)
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText(s.argv("64MiB", j.stop), ranks, ""))
	return j
}

// name names a job that is about to be written.
func (s *session) name(what string) job {
	s.jobs++
	j := job{name: fmt.Sprintf("%02d-%s", s.jobs, what)}
	j.path = filepath.Join(s.out, runFolder, j.name+".hcl")
	j.stop = filepath.Join(s.out, runFolder, j.name+".stop")
	_ = os.Remove(j.stop) // of an earlier time in the same folder
	return j
}

// argv starts a worker.
func (s *session) argv(bytes, stop string) []string {
	return []string{s.worker, "-bytes", bytes, "-for", stayAtMost, "-until", stop}
}

// jobText is a job file; more stands in the job block.
func jobText(command, ranks []string, more string) string {
	var words []string
	for _, w := range command {
		words = append(words, quote(w))
	}
	text := fmt.Sprintf("job \"gpu-check\" {\n  command = [%s]\n\n  hosts \"local\" {}\n", strings.Join(words, ", "))
	if len(ranks) > 0 {
		text += "  ranks {\n    " + strings.Join(ranks, "\n    ") + "\n  }\n"
	}
	return text + more + "}\n"
}

// quote writes a text as HCL has it.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${", "$${", "%{", "%%{").Replace(text) + `"`
}

// planned is muster plan --json, as far as it is looked at.
type planned struct {
	Hosts []struct {
		Visibility string `json:"visibility"`
		Names      string `json:"device_names"`
	} `json:"hosts"`
	Ranks    []plannedRank `json:"ranks"`
	Warnings []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"warnings"`
	Memory *struct { // as estimated, in bytes
		Ranks []struct {
			Least float64 `json:"nccl_least"`
			Most  float64 `json:"nccl_most"`
		} `json:"ranks"`
	} `json:"memory"`
}

type plannedRank struct {
	Rank int `json:"rank"`
	GPU  *struct {
		Index int    `json:"index"`
		UUID  string `json:"uuid"`
		PCI   string `json:"pci"`
	} `json:"gpu"`
	CPUs []int `json:"cpus"`
	Env  map[string]struct {
		Value string `json:"value"`
	} `json:"env"`
}

// env is a variable of a rank.
func (r plannedRank) env(name string) string { return r.Env[name].Value }

// plan has muster plan a job.
func (s *session) plan(ctx context.Context, j job) (*planned, error) {
	o, err := s.command(ctx, s.muster, "plan", j.path, "--json")
	if err != nil {
		return nil, err
	}
	s.keep(filepath.Join(runFolder, j.name+".plan.json"), o.stdout)
	s.note("muster plan took %.2f s", o.took.Seconds())
	if o.exit != 0 {
		return nil, fmt.Errorf("muster plan ends with status %d: %s", o.exit, o.last())
	}
	var p planned
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		return nil, fmt.Errorf("muster plan --json: %w", err)
	}
	if len(p.Hosts) != 1 || len(p.Ranks) == 0 {
		return nil, fmt.Errorf("muster plan has %d hosts and %d ranks", len(p.Hosts), len(p.Ranks))
	}
	for _, r := range p.Ranks {
		if r.GPU == nil {
			return nil, fmt.Errorf("rank %d has no GPU in the plan", r.Rank)
		}
	}
	return &p, nil
}

// refused is the exit status of a plan that muster refuses.
const refused = 75

// mustRefuse has muster run a job that is to be refused with one of these words.
func (s *session) mustRefuse(ctx context.Context, j job, words ...string) error {
	o, err := s.command(ctx, s.muster, "run", j.path)
	if err != nil {
		return err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	if o.exit != refused {
		return fmt.Errorf("status %d, not %d: %s", o.exit, refused, o.last())
	}
	for _, w := range words {
		if strings.Contains(o.stderr, w) {
			s.note("%s", o.last())
			return nil
		}
	}
	return fmt.Errorf("refused, but without a word of %q: %s", words, o.last())
}
