//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// lent are the beds of tests that cut, freeze or power off hosts, which is undone when they end.
var lent room

// lend has a test, or a part of one, run beside others and lends it a bed until it ends.
func lend(t *testing.T) *testbed.Bed {
	t.Helper()
	t.Parallel()
	bed := lent.take(t, t.Name(), testbed.Options{Hosts: 3, Names: []string{"host-m", "host-a", "host-z"}})
	t.Cleanup(func() { restore(t, bed) })
	return bed
}

// restore gives the hosts of a lent bed back what a test took from them, and takes from
// them what a failed test has left.
func restore(t *testing.T, bed *testbed.Bed) {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own has ended
	defer cancel()
	for _, h := range bed.Hosts {
		if err := h.Heal(); err != nil {
			t.Error(err)
		}
		left, _ := h.Leftovers()
		for _, p := range left {
			_ = h.Kill(p.PID, syscall.SIGKILL) // it may be gone by now
		}
		for _, folder := range onHost(h, "/tmp/muster-run-*") {
			os.RemoveAll(folder)
		}
		if h.PID() != 0 {
			continue
		}
		if err := h.Start(ctx); err != nil {
			t.Error(err)
		}
	}
}

// roleOf is what a process does for a run: "keeper", "worker" (the agent), "coordinator";
// "" if it is none of muster's.
func roleOf(p testbed.Process) string {
	if len(p.Args) < 2 || !strings.HasPrefix(filepath.Base(p.Args[0]), "muster") {
		return ""
	}
	if p.Args[1] == "agent" && len(p.Args) > 2 {
		return p.Args[2]
	}
	return p.Args[1]
}

// Roles of processes, as their command lines name them.
const (
	keeper      = "keeper"
	agent       = "worker"
	coordinator = "coordinator"
)

// inRole finds the one process that has a role on a host.
func inRole(t testing.TB, h *testbed.Host, role string) []testbed.Process {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(all, func(p testbed.Process) bool { return roleOf(p) != role })
	if len(found) != 1 {
		t.Fatalf("%s has %d processes of the role %s: %v", h.Name, len(found), role, found)
	}
	return found
}

// atOnce bounds what is to happen without anybody waiting for a lease. On an idle machine
// it takes less than a second; tests that use it set a lease of minutes.
const atOnce = 20 * time.Second

const longLease = "lease = \"5m\"\n"

// lease is what tests use that wait for one.
const lease = 3 * time.Second

const shortLease = "lease = \"3s\"\n"

// obedient is a worker that says that it is there, and ends when it is told to.
const obedient = `
trap 'exit 0' TERM
touch %[1]s/ready-$RANK
while :; do sleep 0.05; done`

// waitReady waits until that many ranks have said that they are there.
func (u *user) waitReady(ranks int) {
	u.t.Helper()
	for rank := range ranks {
		u.waitFor(fmt.Sprintf("ready-%d", rank))
	}
}

// waitRunning is waitReady, and waits until the launcher too knows that the run goes on.
func (l *launch) waitRunning(u *user, ranks int) {
	l.t.Helper()
	u.waitReady(ranks)
	for i := 1; !strings.Contains(l.stderr.String(), ": running, attempt 0"); i++ {
		l.signal(syscall.SIGQUIT)
		eventually(l.t, "muster tells the state", func() bool { return strings.Count(l.stderr.String(), " STATE ") == i })
	}
}
