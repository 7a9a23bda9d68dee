//go:build linux

package endtoend

import (
	"context"
	"encoding/json"
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

// workshop is the folder that built programs lie in; hosts see it at the same path.
var workshop struct {
	once sync.Once
	dir  string
	err  error
}

var shipped struct {
	once sync.Once
	path string
	err  error
}

// workshopDir makes the folder for built programs.
func workshopDir() (string, error) {
	workshop.once.Do(func() {
		removeOldWorkshops()
		workshop.dir, workshop.err = os.MkdirTemp("", "endtoend-")
	})
	return workshop.dir, workshop.err
}

// removeOldWorkshops removes what tests that were killed have left: no test takes a day.
func removeOldWorkshops() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), "endtoend-*"))
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(dir)
		}
	}
}

// muster is the binary under test.
func muster(t testing.TB) string {
	t.Helper()
	shipped.once.Do(func() { shipped.path, shipped.err = shippedBinary() })
	if shipped.err != nil {
		t.Fatal(shipped.err)
	}
	return shipped.path
}

func shippedBinary() (string, error) {
	dir, err := workshopDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "muster")
	given := os.Getenv("MUSTER_BINARY")
	if given == "" {
		return path, build(path)
	}
	program, err := os.ReadFile(given)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, program, 0o755)
}

// build builds muster as the Makefile does, with the agent for this kind of host inside.
// The folder that is embedded is laid over the source tree, so that other builds of the
// same tree are neither disturbed nor seen.
func build(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	carried := path + ".carried"
	err := inTree(ctx, "go", "run", "./cmd/carry", "-into", carried, "-ldflags", "-s -w", "linux/"+runtime.GOARCH)
	if err != nil {
		return err
	}
	overlay, err := writeOverlay(carried, path+".overlay.json")
	if err != nil {
		return err
	}
	return inTree(ctx, "go", "build", "-trimpath", "-tags", "carry", "-overlay", overlay, "-ldflags", "-s -w", "-o", path, "./cmd/muster")
}

// tree is the top of the source tree: tests run in their package's folder.
var tree = func() string {
	top, err := filepath.Abs("../..")
	if err != nil {
		panic("this process has no working folder: " + err.Error())
	}
	return top
}()

func inTree(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}

// writeOverlay describes for the go command a tree whose folder of carried programs is
// this one; what lies in the tree's own is hidden.
func writeOverlay(carried, path string) (string, error) {
	place := filepath.Join(tree, "cmd", "muster", "carried")
	replace := map[string]string{}
	own, _ := filepath.Glob(filepath.Join(place, "*"))
	for _, file := range own {
		replace[file] = ""
	}
	files, err := os.ReadDir(carried)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		replace[filepath.Join(place, file.Name())] = filepath.Join(carried, file.Name())
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, text, 0o644)
}
