package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/proc"
)

// mark is the variable by which processes of a run are known.
const mark = "MUSTER_RUN"

// claimRun takes a lock by the run's name that the kernel lets go with this process:
// who holds it is the run's keeper on this host.
func claimRun(run, hostID string) (lock int, err error) {
	name := runLock(run, hostID)
	lock, err = bindNew(unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: name})
	if err != nil {
		return -1, fmt.Errorf("run %s has a keeper on this host already: %w", run, err)
	}
	return lock, nil
}

func runLock(run, hostID string) string { return "@muster-run-" + run + "-" + hostID }

// sweepOrphans kills processes of this user's earlier runs whose keeper is no more. It is
// the last resort, after keeper, agent and kernel: all three were killed at once.
func sweepOrphans(hostID string) {
	uid := os.Getuid()
	for _, s := range proc.All() {
		// A container's processes show here too, but not its keeper's lock.
		if proc.Owner(s.PID) != uid || !proc.SharesNamespaces(s.PID) {
			continue
		}
		run, ok := proc.EnvironOf(s.PID, mark)
		if ok && !hasKeeper(run, hostID) {
			_ = proc.Signal(s.ID, unix.SIGKILL) // what resists is in state D and holds nothing that muster could free
		}
	}
}

func hasKeeper(run, hostID string) bool {
	lock, err := claimRun(run, hostID)
	if err != nil {
		return true
	}
	unix.Close(lock)
	return false
}
