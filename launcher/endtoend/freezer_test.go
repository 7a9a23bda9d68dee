//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// freezer is where cgroup v1 has it.
const freezer = "/sys/fs/cgroup/freezer"

// freeze stops a process so that not even SIGKILL ends it, until it is thawed.
func freeze(t *testing.T, p testbed.Process) (thaw func()) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(freezer, "tasks")); err != nil {
		t.Skipf("this machine has no freezer of cgroup v1: %v", err)
	}
	group, err := os.MkdirTemp(freezer, "muster-endtoend-")
	if err != nil {
		t.Skipf("this machine's freezer cannot be used: %v", err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			t.Error(err)
		}
	}
	thaw = sync.OnceFunc(func() {
		write("freezer.state", "THAWED")
		eventually(t, "the group is empty", func() bool { return os.Remove(group) == nil })
	})
	t.Cleanup(thaw)
	write("cgroup.procs", fmt.Sprint(p.MachinePID))
	write("freezer.state", "FROZEN")
	eventually(t, "the process is frozen", func() bool {
		state, err := os.ReadFile(filepath.Join(group, "freezer.state"))
		return err == nil && strings.TrimSpace(string(state)) == "FROZEN"
	})
	return thaw
}
