//go:build linux

package torchtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnUncaughtExceptionEndsTheRunAndIsShown(t *testing.T) {
	c := runScript(t, "fail.py", 3, "")
	c.waitFor(&c.stderr, "rank 1 on localhost ended with exit status 1")
	failed := time.Now()
	c.exits(1).says("ranks 0,2: stopped by muster (SIGTERM)", "exit status 1")
	// Rank 0 waits in all_reduce, where PyTorch's own limit is half an hour.
	if took := time.Since(failed); took > 20*time.Second {
		t.Errorf("the others were stopped only %v after the failure", took)
	}
	_, tail, _ := strings.Cut(c.stderr.String(), "its last lines:\n")
	for _, part := range []string{"Traceback (most recent call last):", "in forward", "ValueError: no such layer: attention.7"} {
		if !strings.Contains(tail, part) {
			t.Errorf("the final screen lacks %q:\n%s", part, c.stderr.String())
		}
	}
	readErrorFile(t, c)
}

// readErrorFile reads what PyTorch's @record has written where muster said.
func readErrorFile(t *testing.T, c *command) {
	t.Helper()
	dir := filepath.Dir(c.cmd.Args[len(c.cmd.Args)-1])
	path := readEnvirons(t, dir)[1]["TORCHELASTIC_ERROR_FILE"]
	if inRun, _ := filepath.Match(filepath.Join(dir, "muster/runs/torch-*/*/attempt-0/rank-1.error.json"), path); !inRun {
		t.Errorf("TORCHELASTIC_ERROR_FILE=%s is not a file of the run", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Message struct {
			Message   string `json:"message"`
			ExtraInfo struct {
				Callstack string `json:"py_callstack"`
			} `json:"extraInfo"`
		} `json:"message"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if file.Message.Message != "ValueError: no such layer: attention.7" || !strings.Contains(file.Message.ExtraInfo.Callstack, "in forward") {
		t.Errorf("the error file has %s", text)
	}
}
