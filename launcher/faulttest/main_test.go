//go:build linux

package faulttest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// lanes is how many runs are under test at the same time: they wait for most of their
// time.
const lanes = "4"

// TestMain gives up what the seeds share.
func TestMain(m *testing.M) {
	testbed.DefaultSignals()
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", lanes); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	status := m.Run()
	if err := idle.close(); err != nil {
		fmt.Fprintln(os.Stderr, "close a testbed:", err)
		status = max(status, 1)
	}
	if workshop.dir != "" {
		os.RemoveAll(workshop.dir)
	}
	os.Exit(status)
}
