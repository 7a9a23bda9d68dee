//go:build linux

package torchtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// seen is what testdata/meet.py tells.
type seen struct {
	Torchelastic bool    `json:"torchelastic"`
	Taken        bool    `json:"taken"`     // MASTER_PORT, before the ranks met
	Listening    bool    `json:"listening"` // somebody on it, then
	Store        string  `json:"store"`
	Libuv        bool    `json:"libuv"`
	HostsStore   bool    `json:"hosts_store"` // this rank, when they had met
	Sum          float64 `json:"sum"`
}

var seenLine = regexp.MustCompile(`(?m):(\d+)\| seen (.*)$`)

// The port is held for rank 0, bound, until it listens there, by either of PyTorch's
// servers.
func TestRankZeroHostsTheStoreOnThePortThatWasHeldForIt(t *testing.T) {
	for _, libuv := range []bool{true, false} {
		t.Run(fmt.Sprintf("libuv=%v", libuv), func(t *testing.T) {
			more := "" // libuv is PyTorch's default
			if !libuv {
				more = "env = { USE_LIBUV = 0 }"
			}
			c := runScript(t, "meet.py", 2, more).exits(0)
			lines := seenLine.FindAllStringSubmatch(c.stdout.String(), -1)
			if len(lines) != 2 {
				t.Fatalf("%d ranks have met\n%s", len(lines), c.all())
			}
			for _, line := range lines {
				var got seen
				if err := json.Unmarshal([]byte(line[2]), &got); err != nil {
					t.Fatal(err)
				}
				rank, _ := strconv.Atoi(line[1])
				want := seen{Torchelastic: true, Taken: true, Store: "TCPStore", Libuv: libuv, HostsStore: rank == 0, Sum: 3}
				if rank != 0 {
					want.Listening = got.Listening // rank 0 may have been faster
				}
				if got != want {
					t.Errorf("rank %d has seen %+v, want %+v", rank, got, want)
				}
			}
		})
	}
}

// runScript starts a script of testdata on this machine, with more in its job. What the
// run leaves lies in the job file's folder.
func runScript(t *testing.T, script string, ranks int, more string) *command {
	t.Helper()
	needPrograms(t)
	path, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	job := filepath.Join(dir, "job.hcl")
	text := fmt.Sprintf("job %q {\n  command = [%q, %q]\n  hosts \"local\" {}\n  ranks { per_host = %d }\n  %s\n}\n",
		"torch", programs.python, path, ranks, more)
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, append(baseEnv(t, dir), "XDG_STATE_HOME="+dir), programs.muster, "run", job)
}
