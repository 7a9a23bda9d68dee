//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// sweeping is a job of tasks on GPUs that they share. Each task is a number of a place's turn.
func (u *user) sweeping(script string, tasks int, more string) string {
	u.t.Helper()
	var list []string
	for i := range tasks {
		list = append(list, fmt.Sprintf("[\"%d\"]", i))
	}
	return u.file("sweep.hcl", fmt.Sprintf("job \"sweep\" {\n  command = [\"sh\", %q]\n  mode = \"independent\"\n  tasks = [%s]\n  hosts \"ssh\" {\n    names = [\"shared\"]\n  }\n  ranks {\n    devices = [0, 1]\n  }\n  mps {\n    ranks_per_gpu = 2\n    pinned_memory_limit = \"4GiB\"\n  }\n  stop { grace = \"2s\" }\n%s\n}\n",
		u.file("sweep.sh", script), strings.Join(list, ", "), more))
}

func TestTasksTakeTurnsAsClientsOfOneDaemonEach(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	r := u.run("run", u.sweeping("exec cudaworker -bytes 1GiB -for 300ms", 12, "")).exits(0)
	if n := strings.Count(r.stdout, "\"server\":"); n != 12 {
		t.Errorf("%d of 12 tasks were clients of MPS:\n%s", n, r.stdout)
	}
	noMPSLeft(t, u.bed.Host("shared"))
}

func TestTasksOfOneGPUAreEndedByAFaultAndOthersGoOn(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	// The first task on the first GPU makes the fault when the second one waits for its end.
	script := fmt.Sprintf(`case $1 in
0) exec cudaworker -until %[1]s/now -fault;;
1) exec cudaworker -deaf -stuck -for 60s;;
2|3) exec cudaworker -until %[1]s/later;;
*) exec cudaworker -for 100ms;;
esac`, u.dir)
	l := u.start("run", u.sweeping(script, 8, ""))
	l.waitToSay("every rank was seen on its GPU")
	u.file("now", "")
	l.waitToSay("met a fatal GPU fault")
	eventually(t, "tasks after the fault have run", func() bool { return strings.Count(u.run("status", "-").stdout, "  ended") >= 4 })
	u.file("later", "")
	r := l.wait()
	var rep struct {
		Ranks []struct {
			Rank int
			Ends []struct {
				Exit   int
				Signal string
				Class  string
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	for _, rank := range rep.Ranks {
		if len(rank.Ends) == 0 {
			t.Errorf("task %d has no end", rank.Rank)
			continue
		}
		end := rank.Ends[len(rank.Ends)-1]
		want := map[int]string{0: "gpu.app_fault", 1: "mps.fault"}[rank.Rank]
		if end.Class != want {
			t.Errorf("task %d ended as %+v, want the class %q", rank.Rank, end, want)
		}
	}
	if r.status == 0 {
		t.Error("the run is told to have ended well")
	}
	noMPSLeft(t, u.bed.Host("shared"))
}
