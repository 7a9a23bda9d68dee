//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// diskOf gives a host a file system of its own for runs, which can be made to hang, as that
// of a file server does that is gone. It is not there where files cannot be mounted.
func diskOf(t *testing.T, h *testbed.Host) (hang, goOn func(), is bool) {
	t.Helper()
	do := func(script string) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // also when the test is over
		defer cancel()
		_, _, err := h.Run(ctx, "sh", "-ec", script)
		return err
	}
	if err := do("truncate -s 4G /tmp/disk && mkfs.ext4 -q -F /tmp/disk && mkdir -p /root/.local/state && mount -o loop /tmp/disk /root/.local/state"); err != nil {
		t.Logf("this machine mounts no file system of a file: %v", err)
		return nil, nil, false
	}
	must := func(script string) {
		t.Helper()
		if err := do(script); err != nil {
			t.Error(err)
		}
	}
	goOn = func() { t.Helper(); must("fsfreeze -u /root/.local/state 2>/dev/null || true") }
	t.Cleanup(func() {
		must("fsfreeze -u /root/.local/state 2>/dev/null || true; umount -l /root/.local/state; rm -f /tmp/disk")
	})
	return func() { t.Helper(); must("fsfreeze -f /root/.local/state") }, goOn, true
}

// What is measured, asked and stopped must not wait for the disk that it is kept on. The
// run's end says what is left where that disk still hangs.
func TestAHangIsFoundAndTheRunEndsThoughItsDiskHangsToo(t *testing.T) {
	u := newUser(t, threeHosts(t))
	hang, goOn, is := diskOf(t, u.bed.Host("host-a"))
	if !is {
		return
	}
	l := u.start("run", u.write(job{command: u.steps(""), hosts: []string{"host-z", "host-a"}, perHost: 2, more: shortLease + hangStops}))
	within(t, patience, func() string { return "all come to their last step: " + l.stdout.String() + l.stderr.String() }, func() bool {
		return strings.Count(l.stdout.String(), "step 6") == 3 && strings.Count(l.stdout.String(), "step 5") == 4
	})
	hang()
	l.wait().exits(124).says("rank 3 on host-a is the one to look at: it is at step 5", "left over: host-a")
	u.lastReport().evidenceHas(t, "rank 2 on host-a", "hrtimer_nanosleep")
	goOn()
}

// What the coordinator keeps must not make anybody wait either.
func TestARunEndsWithItsCauseThoughTheDiskOfItsHeadHostHangs(t *testing.T) {
	u := newUser(t, threeHosts(t))
	hang, goOn, is := diskOf(t, u.bed.Host("host-z"))
	if !is {
		return
	}
	sign := u.path("fail")
	l := u.start("run", u.write(job{command: []string{"sh", "-c", fmt.Sprintf(`echo began $RANK; while [ $RANK != 3 ] || [ ! -e %s ]; do sleep 0.1; done; exit 7`, sign)}, hosts: []string{"host-z", "host-a"}, perHost: 2, more: shortLease}))
	within(t, patience, func() string { return "all begin: " + l.stdout.String() + l.stderr.String() }, func() bool {
		return strings.Count(l.stdout.String(), "began") == 4
	})
	hang()
	u.file("fail", "")
	l.wait().exits(7).says("✗ rank 3 on host-a ended with exit status 7", "host-z: the report of this run could not be kept there", "left over: host-z")
	goOn()
	var said string
	within(t, patience, func() string { return "the report is kept once the disk goes on: " + said }, func() bool {
		r := u.run("report", "-", "--json")
		said = r.stdout + r.stderr
		return strings.Contains(r.stdout, "ended with exit status 7")
	})
}

func TestAReportThatAFullDiskDoesNotTakeIsSaidToBeMissing(t *testing.T) {
	u := newUser(t, lend(t))
	smallDisk(t, u.bed.Host("host-z"), "/root/.local/state/muster/runs", "256k")
	u.runJob(job{script: `head -c 400000 /dev/zero | tr '\0' x; echo; exit 3`, hosts: []string{"host-z"}, more: "logs {\n show = \"none\"\n}"}).exits(3).
		says("host-z: the report of this run could not be kept there", "no space left", "rank 0 on host-z ended with exit status 3")
}
