//go:build linux

package torchtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// trainees are two hosts as examples/ddp-cpu.hcl names them, with what it says that they
// need. They share no disk. As on Debian, each one's name resolves to 127.0.1.1 there, and
// as with Docker, each has a bridge with the same address: gloo, left alone, takes one of
// these for the way to the other.
func trainees(t *testing.T) *testbed.Bed {
	t.Helper()
	needPrograms(t)
	bed := testbed.New(t, testbed.Options{
		Hosts: 2, Docker0: true,
		Keep: []string{filepath.Dir(filepath.Dir(programs.python)), programs.pythonHome},
	})
	script, err := os.ReadFile(filepath.Join(tree(), train))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range bed.Hosts {
		folder := filepath.Join(h.Home, "ddp-cpu")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "train.py"), script, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return bed
}

var nextStep = regexp.MustCompile(`told to stop: step (\d+) is next`)

func TestTheExampleTrainsOverSSHAndResumesWhereItWasStopped(t *testing.T) {
	bed := trainees(t)
	run := func(steps int) *command {
		return start(t, bed.ClientEnv(), programs.muster, "run", "examples/ddp-cpu.hcl",
			"-var", "python="+programs.python, "-var", fmt.Sprint("steps=", steps))
	}
	const half = steps / 2

	whole := run(half).exits(0).says(fmt.Sprintf("starting with %d ranks", world))
	losses := whole.losses()
	if len(losses) != half || losses[half-1] >= losses[0] {
		t.Errorf("%d steps with losses %v: want %d, and a loss that falls", len(losses), losses, half)
	}
	sameLosses(t, losses, torchrun(t).losses)

	stopped := run(1_000_000)
	stopped.waitFor(&stopped.stdout, fmt.Sprintf("step %d loss", steps+4))
	stopped.interrupt()
	stopped.exits(130).says(fmt.Sprintf("resuming at step %d from checkpoints/last.pt", half))
	// What is trained after a checkpoint is what would have been trained without it.
	sameLosses(t, stopped.losses(), torchrun(t).losses)
	match := nextStep.FindStringSubmatch(stopped.stdout.String())
	if match == nil {
		t.Fatalf("no checkpoint was written at the end\n%s", stopped.all())
	}
	if _, there := stopped.losses()[half-1]; there {
		t.Errorf("step %d was trained twice", half-1)
	}

	next, _ := strconv.Atoi(match[1])
	resumed := run(next + 3).exits(0).says(fmt.Sprintf("resuming at step %d from checkpoints/last.pt", next))
	if got := resumed.losses(); len(got) != 3 || got[next] == 0 || got[next] >= losses[0] {
		t.Errorf("losses %v after step %d was next: want 3, below the first of all, %v", got, next, losses[0])
	}
	for i, h := range bed.Hosts {
		_, err := os.Stat(filepath.Join(h.Home, "ddp-cpu/checkpoints/last.pt"))
		if there := err == nil; there != (i == 0) {
			t.Errorf("%s: checkpoint there: %v; it belongs on the first host only", h.Name, there)
		}
	}
}
