package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lab is a module with tests that end in every way.
var lab = map[string]string{
	"go.mod": "module lab\n\ngo 1.26\n",
	"good/x_test.go": `package good
import "testing"
func TestGood(t *testing.T) { t.Log("of no interest") }`,
	"skips/x_test.go": `package skips
import "testing"
func TestSkips(t *testing.T) { t.Skip("no moon") }`,
	"bad/x_test.go": `package bad
import "testing"
func TestGood(t *testing.T) { t.Log("of no interest") }
func TestBad(t *testing.T) { t.Run("inner", func(t *testing.T) { t.Error("the reason") }) }`,
	"panics/x_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { t.Log("before"); panic("aargh") }`,
	"broken/x_test.go": `package broken
import "testing"
func TestBroken(t *testing.T) { undefined() }`,
	"sleeps/x_test.go": `package sleeps
import "testing"
func TestSleeps(t *testing.T) { t.Log("still here"); select {} }`,
	"empty/x.go": `package empty`,
}

func TestFailuresAreShownAndSkipsFailForRoot(t *testing.T) {
	dir := writeLab(t)
	for name, want := range map[string]struct {
		pkg     string
		noSkip  bool
		status  int
		has     []string
		hasNone string
	}{
		"all passed":        {"good", true, 0, []string{"ok  \tlab/good", "1 passed, 0 failed, 0 skipped"}, "interest"},
		"no tests":          {"empty", true, 0, []string{"0 passed, 0 failed, 0 skipped"}, "no test files"},
		"a skip":            {"skips", true, 1, []string{"no moon", "root skips no test", "0 passed, 0 failed, 1 skipped"}, "FAIL"},
		"a skip, not root":  {"skips", false, 0, []string{"no moon", "0 passed, 0 failed, 1 skipped"}, "root"},
		"a failure":         {"bad", true, 1, []string{"the reason", "FAIL\tlab/bad", "1 passed, 2 failed"}, "interest"},
		"a panic":           {"panics", true, 1, []string{"before", "panic: aargh", "FAIL\tlab/panics"}, "ok  "},
		"does not compile":  {"broken", true, 1, []string{"undefined: undefined", "FAIL\tlab/broken [build failed]"}, "ok  "},
		"no such package":   {"nowhere", true, 1, []string{"0 passed"}, "ok  "},
		"out of time":       {"sleeps", true, 1, []string{"still here", "panic: test timed out"}, "ok  "},
		"one of two is bad": {"...", true, 1, []string{"ok  \tlab/good", "FAIL\tlab/bad"}, "interest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(dir)
			var out strings.Builder
			status, err := run([]string{"-count=1", "-timeout=2s", "./" + want.pkg}, &out, want.noSkip)
			if status != want.status || err != nil {
				t.Errorf("status %d, want %d; %v", status, want.status, err)
			}
			for _, part := range want.has {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in:\n%s", part, out.String())
				}
			}
			if strings.Contains(out.String(), want.hasNone) {
				t.Errorf("%q in:\n%s", want.hasNone, out.String())
			}
		})
	}
}

func writeLab(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range lab {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
