package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// hungStatus is the exit status of a run that ended as a hang.
const hungStatus = 124

// hangBlock ends a run in which nothing moves.
const hangBlock = "  hang {\n    silence = \"6s\"\n    action  = \"stop\"\n  }\n"

// silentJob writes a job whose one rank is silent on the first GPU.
func (s *session) silentJob(how string) (job, error) {
	path, err := s.script("silent.py")
	j := s.name("torch-" + how)
	s.keep(filepath.Join(runFolder, j.name+".hcl"), jobText([]string{s.python, path, how}, []string{"devices = [" + quote(s.usable[0].UUID) + "]"}, hangBlock))
	return j, err
}

// checkSpins has a program of CUDA hang as one does that waits in a collective, and wants to
// be told so, and where it is.
func checkSpins(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	j, err := s.silentJob("spins")
	if err != nil {
		return err
	}
	cause, _, err := s.failsBy(ctx, j, hungStatus)
	if err != nil {
		return err
	}
	s.note("class %s: %s", cause.Class, cause.Message)
	if cause.Class != "hang" {
		return fmt.Errorf("the class is %s, not hang; evidence %q", cause.Class, cause.Evidence)
	}
	all := strings.Join(cause.Evidence, "\n")
	for _, want := range []string{"its GPU busy without traffic", "spins ("} {
		if !strings.Contains(all, want) {
			return fmt.Errorf("the evidence lacks %q: %q", want, cause.Evidence)
		}
	}
	for _, line := range cause.Evidence {
		s.note("%s", line)
	}
	if !strings.Contains(all, "by py-spy in ") && !strings.Contains(all, "by faulthandler in ") {
		return fmt.Errorf("nobody says where the program is: %q", cause.Evidence)
	}
	return nil
}

// checkWorks has a program of CUDA be silent for longer than that while it works.
func checkWorks(ctx context.Context, s *session) error {
	if err := s.torchHere(ctx); err != nil {
		return err
	}
	j, err := s.silentJob("works")
	if err != nil {
		return err
	}
	o, err := s.command(ctx, s.muster, "run", j.path)
	if err != nil {
		return err
	}
	s.keep(filepath.Join(runFolder, j.name+".txt"), o.all())
	if o.exit != 0 || strings.Contains(o.stderr, "no output") {
		return fmt.Errorf("muster run ends with status %d: %s", o.exit, o.last())
	}
	r, err := s.command(ctx, s.muster, "report", "-", "--json")
	if err != nil {
		return err
	}
	s.keep(filepath.Join(runFolder, j.name+".report.json"), r.stdout)
	var report struct{ Outcome string }
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || report.Outcome != "ok" {
		return fmt.Errorf("the report has the outcome %q (%v)", report.Outcome, err)
	}
	return nil
}
