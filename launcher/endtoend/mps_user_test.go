//go:build linux

package endtoend

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// ordinary has an account on the hosts with MPS, and no rights of root.
const ordinary = "ann"

// newOrdinary makes a user who logs in to a host as somebody who is not root.
func newOrdinary(t testing.TB, bed *testbed.Bed, host string) *user {
	u := newUser(t, bed)
	h := bed.Host(host)
	u.ssh(host, "HostName "+h.Addr.String(), "Port "+strconv.Itoa(h.Port), "User "+ordinary)
	return u
}

// ownerOf is who a process on a host belongs to.
func ownerOf(t testing.TB, h *testbed.Host, pid int) int {
	t.Helper()
	out, _, err := h.Run(t.Context(), "stat", "-c", "%u", fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

func TestAnOrdinaryUserSharesGPUsWithoutRoot(t *testing.T) {
	bed := theMPSHosts(t)
	h := bed.Host("shared")
	u := newOrdinary(t, bed, "shared")
	l := u.sharingStarted("ordinary", "-bytes 1GiB -for 60s", "    devices = [0]", "    ranks_per_gpu = 2\n    active_thread_percentage = 50\n    pinned_memory_limit = \"4GiB\"", shortLease)
	control, server := mpsProcesses(t, h)
	for _, p := range append(control, server...) {
		if uid := ownerOf(t, h, p.PID); uid != testbed.UserID {
			t.Errorf("%v is of user %d", p.Args, uid)
		}
	}
	u.run("mps", "ps", "-H", "shared").prints("daemon", "serves", h.GPUs().GPUs[0].UUID)
	signalTo(t, h, inRole(t, h, keeper), syscall.SIGKILL)
	found := sharersOf(t, l.wait())
	for rank, s := range found {
		if s.MPS == nil || s.MPS.Percentage != 50 || s.MPS.Limit != 4<<30 {
			t.Errorf("rank %s: %+v", rank, s)
		}
	}
	if len(found) != 2 {
		t.Errorf("%d workers have said where they are", len(found))
	}
	within(t, patience, func() string { a, b := mpsProcesses(t, h); return fmt.Sprint("still there: ", a, b) }, func() bool {
		control, server := mpsProcesses(t, h)
		return len(control)+len(server) == 0
	})
	nothingLeft(t, bed)
	noMPSLeft(t, h)
}

func TestAnotherUsersDaemonIsToldAndLeftAlone(t *testing.T) {
	bed := theMPSHosts(t)
	h := bed.Host("shared")
	u := newOrdinary(t, bed, "shared")
	t.Cleanup(func() { _, _, _ = h.Run(t.Context(), "rm", "-rf", "/run/theirs") })
	d := daemonOnHost(t, h, "/run/theirs", "1")
	if _, _, err := h.Run(t.Context(), "chmod", "700", "/run/theirs"); err != nil {
		t.Fatal(err)
	}
	// Which GPUs it covers only its user may know.
	u.run("run", u.sharingJob("own", "-for 300ms", "    devices = [1]", "    ranks_per_gpu = 2")).says(fmt.Sprintf("MPS daemon of root (pid %d)", d.PID))
	u.run("run", u.sharingJob("theirs", "-for 300ms", "    devices = [1]", "    ranks_per_gpu = 2\n    daemon = \"existing\"\n    pipe_directory = \"/run/theirs\"")).
		exits(75).says("/run/theirs")
	if control, _ := mpsProcesses(t, h); len(control) != 1 || control[0].PID != d.PID {
		t.Errorf("their daemon is not the one that is there: %v", control)
	}
}
