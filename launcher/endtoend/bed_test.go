//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// patience bounds every wait; what is waited for takes a fraction of it on an idle
// machine.
const patience = 60 * time.Second

var cluster room

// three are hosts whose names do not sort as their job files list them, and whose
// addresses sort the other way round. Each has docker's bridge, the same on all of them,
// and a name that resolves to 127.0.1.1.
var three = []string{"host-z", "host-a", "host-m"}

// threeHosts is the bed that most tests use.
func threeHosts(t testing.TB) *testbed.Bed {
	t.Helper()
	return cluster.borrow(t, testbed.Options{Hosts: 3, Names: []string{"host-m", "host-a", "host-z"}, Docker0: true})
}

// ownBed is a bed for one test.
func ownBed(t testing.TB, opts testbed.Options) *testbed.Bed {
	t.Helper()
	runBesideOthers(t)
	muster(t)
	opts.Keep = append(opts.Keep, workshop.dir)
	return testbed.New(t, opts)
}

// nothingLeft waits until no process of a run is left on the hosts, nor a folder of
// sockets.
func nothingLeft(t testing.TB, bed *testbed.Bed) {
	t.Helper()
	t.Cleanup(func() { // what is left is this test's fault, and not to be the next one's
		if t.Failed() {
			clearHosts(bed)
		}
	})
	var left []string
	within(t, 20*time.Second, func() string { return fmt.Sprintf("still on the hosts: %q", left) }, func() bool {
		left = leftOn(t, bed)
		return len(left) == 0
	})
}

// clearHosts kills what a failed test has left on its hosts.
func clearHosts(bed *testbed.Bed) {
	for _, h := range bed.Hosts {
		left, _ := h.Leftovers()
		for _, p := range left {
			_ = h.Kill(p.PID, syscall.SIGKILL)
		}
		for _, folder := range onHost(h, "/tmp/muster-run-*") {
			_ = os.RemoveAll(folder)
		}
	}
}

func leftOn(t testing.TB, bed *testbed.Bed) (left []string) {
	t.Helper()
	for _, h := range bed.Hosts {
		processes, err := h.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range processes {
			left = append(left, h.Name+": "+p.String())
		}
		for _, folder := range onHost(h, "/tmp/muster-*") {
			if filepath.Base(folder) != filepath.Base(bed.Dir) { // the way to bed.Shared
				left = append(left, h.Name+": "+folder)
			}
		}
	}
	return left
}

// onHost finds files of a host by a pattern of its own paths.
func onHost(h *testbed.Host, pattern string) []string {
	if h.PID() == 0 {
		return nil
	}
	found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root%s", h.PID(), pattern))
	return found
}

// eventually waits until ok, polling.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, patience, func() string { return what }, ok)
}

func within(t testing.TB, limit time.Duration, what func() string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what())
		}
	}
}
