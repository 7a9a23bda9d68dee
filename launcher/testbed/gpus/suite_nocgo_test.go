//go:build linux && !cgo

package gpus_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// NVML's prober needs cgo, which the rest of this module does without: its part of the
// suite runs in a test program of its own.
func TestWithCgo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "NVML|Prober", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test with cgo: %v\n%s", err, out)
	}
}
