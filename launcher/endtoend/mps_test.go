//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

var mpsRoom sharedBed

// theMPSHosts are two machines with MPS: four cards of one, of the other older ones.
func theMPSHosts(t *testing.T) *testbed.Bed {
	t.Helper()
	names := []string{"shared", "old"}
	return mpsRoom.get(t, testbed.Options{Hosts: len(names), Names: names, Each: func(i int, h *testbed.HostOptions) {
		h.GPUs = onThisMachine(t, []func() *gpus.Scenario{gpus.L40S, gpus.Pascal}[i]()).OwnCards(100 + i)
	}})
}

// sharingJob writes a job whose workers share GPUs of a host by MPS. worker are the flags of
// cudaworker, or a whole script.
func (u *user) sharingJob(name, worker, ranks, block string, more ...string) string {
	u.t.Helper()
	command := "exec cudaworker " + worker
	if strings.Contains(worker, "cudaworker") {
		command = worker
	}
	return u.file(name+".hcl", fmt.Sprintf("job %q {\n  command = [\"sh\", \"-c\", %s]\n  %s\n  hosts \"ssh\" {\n    names = [\"shared\"]\n  }\n  ranks {\n%s\n    backend = \"none\"\n  }\n  mps {\n%s\n  }\n  stop { grace = \"2s\" }\n}\n",
		name, hclString(command), strings.Join(more, "\n  "), ranks, block))
}

// sharer is where a worker says that it is, and what it shares.
type sharer struct {
	Rank, UUID string
	PID        int
	Visible    []string
	MPS        *struct {
		Server     int
		Percentage float64
		Limit      uint64
		Free       uint64
	}
}

func sharersOf(t testing.TB, r result) map[string]sharer {
	t.Helper()
	found := map[string]sharer{}
	for line := range strings.Lines(r.stdout) {
		_, text, _ := strings.Cut(line, "| ")
		var s sharer
		if json.Unmarshal([]byte(text), &s) == nil && s.Rank != "" {
			found[s.Rank] = s
		}
	}
	return found
}

// mpsProcesses are the processes of MPS on a host.
func mpsProcesses(t testing.TB, h *testbed.Host) (control, server []testbed.Process) {
	t.Helper()
	all, err := h.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if len(p.Args) == 0 {
			continue
		}
		switch filepath.Base(p.Args[0]) {
		case gpus.MPSControl:
			control = append(control, p)
		case gpus.MPSServer:
			server = append(server, p)
		}
	}
	return control, server
}

// noMPSLeft sees that no process and no folder of MPS is left on a host.
func noMPSLeft(t testing.TB, h *testbed.Host) {
	t.Helper()
	control, server := mpsProcesses(t, h)
	if len(control)+len(server) > 0 {
		t.Errorf("left on %s: %v %v", h.Name, control, server)
	}
	if left := onHost(h, "/tmp/muster-run-*"); len(left) > 0 {
		t.Errorf("left on %s: %v", h.Name, left)
	}
}

func TestRanksShareGPUsAsClientsWithTheirLimits(t *testing.T) {
	u := newUser(t, theMPSHosts(t))
	h := u.bed.Host("shared")
	path := u.sharingJob("sharing", "-bytes 1GiB -for 3s", "    devices = [3, 1]", `    ranks_per_gpu            = 2
    active_thread_percentage = [50, 25]
    pinned_memory_limit      = ["4GiB", "1536MiB"]`)
	r := u.run("run", path).exits(0)
	r.says("every rank was seen on its GPU")
	found := sharersOf(t, r)
	if len(found) != 4 {
		t.Fatalf("%d workers have said where they are: %s", len(found), r.stdout)
	}
	cards := h.GPUs().GPUs
	servers := map[string]int{}
	for rank, s := range found {
		n := int(rank[0] - '0')
		want := cards[[]int{3, 3, 1, 1}[n]].UUID
		if s.UUID != want || s.MPS == nil {
			t.Fatalf("rank %s: %+v, want %s", rank, s, want)
		}
		if s.MPS.Percentage != []float64{50, 25}[n%2] || s.MPS.Limit != []uint64{4 << 30, 1536 << 20}[n%2] {
			t.Errorf("rank %s: %+v", rank, *s.MPS)
		}
		if other := servers[want]; other != 0 && other != s.MPS.Server {
			t.Errorf("GPU %s has two servers", want)
		}
		servers[want] = s.MPS.Server
	}
	if len(servers) != 2 || servers[cards[3].UUID] == servers[cards[1].UUID] {
		t.Errorf("servers %v", servers)
	}
	noMPSLeft(t, h)
	u.run("report", "-").prints("MPS", "GPU 3", "rank")
	var rep struct {
		MPS []struct {
			UUID  string
			Ranks []struct {
				Rank   int
				Client int     `json:"client_pid"`
				Share  float64 `json:"active_thread_percentage"`
				Limit  uint64  `json:"pinned_memory_limit"`
				Peak   uint64  `json:"memory_peak"`
			}
		}
	}
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.MPS) != 2 || len(rep.MPS[0].Ranks) != 2 || rep.MPS[0].Ranks[1].Client != found["1"].PID || rep.MPS[0].Ranks[1].Share != 25 || rep.MPS[1].Ranks[0].Limit != 4<<30 || rep.MPS[1].Ranks[0].Peak == 0 {
		t.Errorf("%+v", rep.MPS)
	}
}

func TestWithoutRootTheSameHolds(t *testing.T) {
	t.Skip("users of the testbed are root")
}

func TestMPSEndsWithTheRunHoweverThatEnds(t *testing.T) {
	bed := theMPSHosts(t)
	for _, c := range []struct {
		name string
		end  func(t *testing.T, u *user, l *launch, h *testbed.Host)
	}{
		{"by Ctrl-C", func(_ *testing.T, _ *user, l *launch, _ *testbed.Host) { l.signal(syscall.SIGINT) }},
		{"its agent is killed", func(t *testing.T, _ *user, _ *launch, h *testbed.Host) {
			signalTo(t, h, inRole(t, h, agent), syscall.SIGKILL)
		}},
		{"its keeper is killed", func(t *testing.T, _ *user, _ *launch, h *testbed.Host) {
			signalTo(t, h, inRole(t, h, keeper), syscall.SIGKILL)
		}},
		{"a worker fails", func(_ *testing.T, u *user, _ *launch, _ *testbed.Host) { u.file("fail", "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			h := bed.Host("shared")
			// The last worker ignores the stop signal, and so would a hanging one.
			path := u.sharingJob("ends", fmt.Sprintf(`[ $RANK = 0 ] || exec cudaworker -deaf -for 60s; cudaworker -until %s/fail; exit 3`, u.dir), "    devices = [0]", "    ranks_per_gpu = 2", shortLease)
			l := u.start("run", path)
			l.waitToSay("every rank was seen on its GPU")
			c.end(t, u, l, h)
			l.wait()
			within(t, patience, func() string { a, b := mpsProcesses(t, h); return fmt.Sprint("still there: ", a, b) }, func() bool {
				control, server := mpsProcesses(t, h)
				return len(control)+len(server) == 0
			})
			nothingLeft(t, bed)
			noMPSLeft(t, h)
		})
	}
	u := newUser(t, bed)
	if left := onHost(bed.Host("shared"), filepath.Join(u.dir, "nothing")); len(left) > 0 {
		t.Error(left)
	}
	_ = os.Remove
}
