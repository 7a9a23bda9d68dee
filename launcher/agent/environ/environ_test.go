//go:build linux

package environ

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatALoginLeftBehindDoesNotReachWorkers(t *testing.T) {
	env := Host([]string{"PATH=/bin", "SSH_AUTH_SOCK=/x", "RANK=7", "TORCHELASTIC_RUN_ID=old", "MUSTER_RUN=outer", "A=b=c", "BASH_FUNC_f%%=() { :; }", "broken"})
	want := []string{"A=b=c", "BASH_FUNC_f%%=() { :; }", "PATH=/bin"}
	if got := Layered(env); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHigherLayersWin(t *testing.T) {
	got := Layered(map[string]string{"A": "default", "B": "default"}, map[string]string{"A": "host"}, map[string]string{"C": "plan"})
	if want := []string{"A=host", "B=default", "C=plan"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgramsAreFoundByTheWorkersPath(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("run", 0o755)
	write("plain", 0o644)
	for program, want := range map[string]string{"run": filepath.Join(dir, "run"), "./run": filepath.Join(dir, "run"), "plain": "", "./plain": "", "nothing": "", "/": ""} {
		got, err := LookPath(program, []string{"PATH=/nowhere:" + dir}, dir)
		if (err == nil) != (want != "") || want != "" && got != want {
			t.Errorf("%s: %q, %v", program, got, err)
		}
	}
}
