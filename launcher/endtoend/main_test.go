//go:build linux

package endtoend

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// TestMain gives up what tests share.
func TestMain(m *testing.M) {
	testbed.DefaultSignals()
	// Tests that run beside each other wait more than they work. A flag given wins.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic("package testing has no flag -parallel: " + err.Error())
	}
	status := m.Run()
	for _, bed := range started.beds {
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
