//go:build linux

package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// buildTime bounds a build from nothing on a slow machine.
const buildTime = 5 * time.Minute

// workshop is the folder of the programs under test; hosts see it at the same path.
var workshop struct {
	once sync.Once
	dir  string
	err  error
}

// programs builds muster, unless MUSTER_BINARY names it, and the worker, and returns
// their paths.
func programs(t testing.TB) (muster, talker string) {
	t.Helper()
	workshop.once.Do(func() {
		if workshop.dir, workshop.err = os.MkdirTemp("", "faulttest-"); workshop.err == nil {
			workshop.err = buildAll(workshop.dir)
		}
	})
	if workshop.err != nil {
		t.Fatal(workshop.err)
	}
	return filepath.Join(workshop.dir, "muster"), filepath.Join(workshop.dir, "talker")
}

func buildAll(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	top, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	gcc := command(ctx, top, "gcc", "-O2", "-Wall", "-static", "-o", filepath.Join(dir, "talker"), "launcher/faulttest/worker/talker.c")
	muster := filepath.Join(dir, "muster")
	given := os.Getenv("MUSTER_BINARY")
	if given == "" {
		return errors.Join(gcc, build(ctx, top, muster))
	}
	program, err := os.ReadFile(given)
	return errors.Join(gcc, err, os.WriteFile(muster, program, 0o755))
}

// build builds muster as the Makefile does, with the agent for this kind of host inside.
// The folder that is embedded is laid over the source tree, so that other builds of the
// same tree are neither disturbed nor seen.
func build(ctx context.Context, top, path string) error {
	carried, overlay := path+".carried", path+".overlay.json"
	if err := command(ctx, top, "go", "run", "./cmd/carry", "-into", carried, "-ldflags", "-s -w", "linux/"+runtime.GOARCH); err != nil {
		return err
	}
	place := filepath.Join(top, "cmd", "muster", "carried")
	replace := map[string]string{}
	own, _ := filepath.Glob(filepath.Join(place, "*"))
	for _, file := range own {
		replace[file] = ""
	}
	files, err := os.ReadDir(carried)
	if err != nil {
		return err
	}
	for _, file := range files {
		replace[filepath.Join(place, file.Name())] = filepath.Join(carried, file.Name())
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return err
	}
	return command(ctx, top, "go", "build", "-trimpath", "-tags", "carry", "-overlay", overlay, "-ldflags", "-s -w", "-o", path, "./cmd/muster")
}

func command(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}
