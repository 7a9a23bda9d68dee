package nvidiasmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/plugins/nvidia"
	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// script is an nvidia-smi made of shell commands.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStdoutIsReadWhateverTheExitStatus(t *testing.T) {
	p := &Program{Path: script(t, `echo "args: $*"; echo "locale: $LC_ALL"; echo complaint >&2; exit 15`)}
	out, err := p.Run(t.Context(), "topo", "-m")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "stdout", string(out.Stdout), "args: topo -m\nlocale: C\n")
	same(t, "stderr", string(out.Stderr), "complaint\n")
	same(t, "status", out.Exit, 15)
}

func TestAProgramThatHangsIsKilledWithItsChildrenAndWhatItSaidIsKept(t *testing.T) {
	child := filepath.Join(t.TempDir(), "child")
	p := &Program{Path: script(t, `echo first; sleep 1000 & echo $! > `+child+`; wait`), Limit: 3 * time.Second}
	start := time.Now()
	out, err := p.Run(t.Context(), "-q", "-x")
	if err == nil || !strings.Contains(err.Error(), "no end within 3s, killed") {
		t.Errorf("error %v", err)
	}
	same(t, "stdout", string(out.Stdout), "first\n")
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	pid, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	waitGone(t, plaintext.Digits(strings.TrimSpace(string(pid))))
	if pid := p.stuckNow(); pid != 0 {
		t.Errorf("%d counts as stuck", pid)
	}
}

// waitGone waits until a process has ended; a zombie that its parent has not reaped has.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

// A process in state D survives SIGKILL until the driver lets go. Here the signal is
// withheld instead.
func TestAProgramThatDoesNotDieIsLeftBehindAndNoOtherStarted(t *testing.T) {
	release := filepath.Join(t.TempDir(), "release")
	var stuck int
	p := &Program{
		Path:  script(t, `echo $$; while [ ! -e `+release+` ]; do sleep 0.05; done`),
		Limit: 2 * time.Second,
		kill:  func(pid int) { stuck = pid },
	}
	out, err := p.Run(t.Context(), "-L")
	if err == nil || !strings.Contains(err.Error(), "does not die") {
		t.Fatalf("error %v", err)
	}
	same(t, "stdout", plaintext.Digits(strings.TrimSpace(string(out.Stdout))), stuck)
	if _, err := p.Run(t.Context(), "-L"); err == nil || !strings.Contains(err.Error(), "earlier probe") {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(release, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	waitGone(t, stuck)
	for deadline := time.Now().Add(20 * time.Second); p.stuckNow() != 0; {
		if time.Now().After(deadline) {
			t.Fatal("still counts as stuck")
		}
		<-time.After(10 * time.Millisecond)
	}
	if _, err := p.Run(t.Context(), "-L"); err != nil {
		t.Errorf("after it has gone: %v", err)
	}
}

func TestTheCallerMayStopSooner(t *testing.T) {
	p := &Program{Path: script(t, `sleep 1000`)}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.Run(ctx, "-L"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestAChildThatKeepsThePipeDoesNotHoldTheAnswer(t *testing.T) {
	p := &Program{Path: script(t, `echo done; sleep 3 & exit 6`), Limit: time.Minute}
	out, err := p.Run(t.Context(), "-L")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "stdout", string(out.Stdout), "done\n")
	same(t, "status", out.Exit, 6)
}

func TestEndlessOutputIsCut(t *testing.T) {
	p := &Program{Path: script(t, `exec yes`), Limit: time.Second}
	out, err := p.Run(t.Context(), "-q", "-x")
	if err == nil || len(out.Stdout) > maxOutput {
		t.Errorf("%d bytes, error %v", len(out.Stdout), err)
	}
}

func TestTheProgramIsFoundOutsideOfPATHToo(t *testing.T) {
	path := script(t, "")
	t.Cleanup(func(usual []string) func() { return func() { nvidia.ProgramFolders = usual } }(nvidia.ProgramFolders))
	nvidia.ProgramFolders = nil
	t.Setenv("PATH", filepath.Dir(path))
	if got, err := (&Program{}).find(); got != path || err != nil {
		t.Errorf("in PATH: %q, %v", got, err)
	}
	t.Setenv("PATH", "/nowhere")
	if _, err := (&Program{}).Run(t.Context(), "-L"); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("nowhere: %v", err)
	}
	nvidia.ProgramFolders = []string{"/nowhere", filepath.Dir(path)}
	if got, err := (&Program{}).find(); got != path || err != nil {
		t.Errorf("in a usual place: %q, %v", got, err)
	}
	if _, err := (&Program{Path: "/nowhere/nvidia-smi"}).Run(t.Context(), "-L"); err == nil {
		t.Error("a program that is not there ran")
	}
}

// The whole way: a script that answers as the machine of the samples does.
func TestProbeRunsTheProgram(t *testing.T) {
	folder, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	path := script(t, `cd `+folder+` || exit 1
case "$*" in
"-q -x") cat nvidia-smi/xml-rtx4000ada-4process-dtd13-driver595.xml;;
"-L") echo "GPU 0: NVIDIA RTX 4000 SFF Ada Generation (UUID: GPU-00000009-0000-0000-0000-000000000009)";;
"topo -m") cat topo/47-single-l40s-ansi-driver595.txt;;
"nvlink -s") echo "GPU 0: NVIDIA RTX 4000 SFF Ada Generation (UUID: GPU-00000009-0000-0000-0000-000000000009)"; echo "Device does not have or support Nvlink";;
esac`)
	got := probe(t, &Program{Path: path, Limit: time.Minute})
	same(t, "GPUs", len(got.GPUs), 1)
	same(t, "processes", len(got.GPUs[0].Processes), 4)
	same(t, "NVLinks", got.GPUs[0].Why["nvlinks"], "this product has no NVLinks")
}
