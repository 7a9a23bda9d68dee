//go:build linux

package keeper

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/proc"
)

// RunVariable marks the processes of a run.
const RunVariable = "MUSTER_RUN"

// lockRun takes a lock by the run's name that the kernel releases with this process: its holder is the run's keeper on
// this host.
func lockRun(run, hostID string) (lock int, err error) {
	lock, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(lock, &unix.SockaddrUnix{Name: "@muster-run-" + run + "-" + hostID}); err != nil {
		unix.Close(lock)
		return -1, fmt.Errorf("run %s has a keeper on this host already: %w", run, err)
	}
	return lock, nil
}

// Lives reports whether a run has a keeper on this host.
func Lives(run, hostID string) bool {
	lock, err := lockRun(run, hostID)
	if err != nil {
		return true
	}
	unix.Close(lock)
	return false
}

// sweepOrphans kills processes of this user's earlier runs whose keeper is gone. It is the last resort, after keeper,
// agent and kernel: all three were killed at once.
func sweepOrphans(hostID string) {
	uid := os.Getuid()
	for _, s := range proc.All() {
		// A container's processes show here too, but not its keeper's lock.
		if proc.Owner(s.PID) != uid || !proc.SharesNamespaces(s.PID) {
			continue
		}
		if run, ok := proc.EnvironOf(s.PID, RunVariable); ok && !Lives(run, hostID) {
			_ = proc.Signal(s.ID, unix.SIGKILL) // what survives is in state D and holds nothing that muster could free
		}
	}
}
