//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"testing"
)

// TestMain gives up what tests share.
func TestMain(m *testing.M) {
	status := m.Run()
	for _, bed := range standing {
		if err := bed.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close a testbed:", err)
			status = max(status, 1)
		}
	}
	if workshop.dir != "" {
		os.RemoveAll(workshop.dir)
	}
	os.Exit(status)
}
