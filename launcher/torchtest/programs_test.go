//go:build linux

package torchtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// setupTime bounds what must be made before the first test: PyTorch takes a minute or two
// where it is missing, a build less.
const setupTime = 10 * time.Minute

// programs are what all tests run, made by the first that asks.
var programs struct {
	once   sync.Once
	err    error
	dir    string // removed by TestMain
	muster string
	python string
	// pythonHome is what the Python environment was made from and links to.
	pythonHome string
}

func TestMain(m *testing.M) {
	testbed.DefaultSignals()
	status := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(status)
}

// needPrograms makes the programs or fails the test.
func needPrograms(t testing.TB) {
	t.Helper()
	programs.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTime)
		defer cancel()
		if programs.err = findMuster(ctx); programs.err == nil {
			programs.err = findPython(ctx)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
}

// tree is the top of the source tree: tests run in their package's folder.
func tree() string {
	top, err := filepath.Abs("../..")
	if err != nil {
		panic("this process has no working folder: " + err.Error())
	}
	return top
}

// findMuster copies the binary, so that no later build changes it under a test.
func findMuster(ctx context.Context) (err error) {
	if programs.dir, err = os.MkdirTemp("", "torchtest-"); err != nil {
		return err
	}
	programs.muster = filepath.Join(programs.dir, "muster")
	if given := os.Getenv("MUSTER_BINARY"); given != "" {
		_, err = output(ctx, "cp", given, programs.muster)
		return err
	}
	// Others may build at the same time: whoever holds the lock builds and copies.
	_, err = output(ctx, "sh", "-c", `mkdir -p bin && exec flock bin/.lock sh -c 'make build && cp bin/muster "$1"' sh "$1"`, "sh", programs.muster)
	return err
}

func findPython(ctx context.Context) error {
	venv, err := output(ctx, ".ci/torch")
	if err != nil {
		return err
	}
	programs.python = filepath.Join(venv, "bin", "python")
	programs.pythonHome, err = output(ctx, programs.python, "-c", "import sys; print(sys.base_prefix)")
	return err
}

// output runs a program at the top of the source tree and returns its only line.
func output(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = tree()
	cmd.WaitDelay = time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", argv, err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
