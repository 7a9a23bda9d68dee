//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

// finalScreen is what muster prints at the end of a run that did not end well, from the
// line that names the first cause on.
func (r result) finalScreen() []string {
	r.t.Helper()
	for _, mark := range []string{"\n✗ ", "\n■ "} {
		if i := strings.LastIndex(r.stderr, mark); i >= 0 {
			return strings.Split(strings.TrimRight(r.stderr[i+1:], "\n"), "\n")
		}
	}
	r.t.Fatalf("there is no final screen:\n%s", r.stderr)
	return nil
}

// line returns the first line of the final screen that holds a text.
func (r result) line(text string) string {
	r.t.Helper()
	for _, line := range r.finalScreen() {
		if strings.Contains(line, text) {
			return line
		}
	}
	r.t.Errorf("the final screen lacks %q:\n%s", text, r.stderr)
	return ""
}

// B32
func TestTheFirstCauseIsNotDrownedByMustersOwnKills(t *testing.T) {
	for _, hosts := range [][]string{nil, {"host-z", "host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, threeHosts(t))
			if hosts == nil {
				u.sittingAt("host-z")
			}
			r := u.runJob(job{
				script: fmt.Sprintf(`
					trap "" TERM
					touch %[1]s/ready-$RANK
					if [ $RANK = 1 ]; then
						while [ ! -e %[1]s/ready-0 ] || [ ! -e %[1]s/ready-2 ] || [ ! -e %[1]s/ready-3 ]; do sleep 0.02; done
						echo "last words" >&2
						exit 3
					fi
					while :; do sleep 0.1; done`, u.dir),
				hosts: hosts, perHost: 4 / max(1, len(hosts)), more: "stop {\n grace = \"500ms\"\n}",
			}).exits(3)
			screen := r.finalScreen()
			host := "localhost"
			if hosts != nil {
				host = "host-z"
			}
			if want := "✗ rank 1 on " + host + " ended with exit status 3"; screen[0] != want {
				t.Errorf("the final screen begins %q, want %q", screen[0], want)
			}
			r.line("last words")
			if line := r.line("stopped by muster"); line != "  ranks 0,2-3: stopped by muster (SIGKILL)" {
				t.Errorf("of the others it says %q", line)
			}
			if len(screen) > 10 {
				t.Errorf("the final screen has %d lines:\n%s", len(screen), strings.Join(screen, "\n"))
			}
			for _, rank := range []string{"rank 0", "rank 2", "rank 3"} {
				for line := range strings.Lines(r.stderr) {
					if strings.Contains(line, rank) && !strings.Contains(line, "muster had sent") && !strings.Contains(line, "stopped by muster") {
						t.Errorf("what muster did itself looks like a failure: %s", line)
					}
				}
			}
		})
	}
}

// B33
func TestTheFailedRanksLastLinesAreShownThoughItsOutputIsNot(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	const traceback = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\nRuntimeError: boom without newline"
	r := u.runJob(job{
		script: `
			[ $RANK = 2 ] || exec sleep 1000
			i=0
			while [ $i -lt 5000 ]; do echo "step $i"; i=$((i+1)); done
			cat ` + u.file("traceback", traceback) + ` >&2
			exit 1`,
		hosts: []string{"host-z", "host-a"}, perHost: 2,
		more: "logs {\n show = \"0\"\n}\nstop {\n grace = \"5s\"\n}",
	}).exits(1)
	r.line("Traceback (most recent call last)")
	r.line("RuntimeError: boom without newline")
	if strings.Contains(r.stdout+r.stderr, ":2|") {
		t.Error("rank 2 is shown, although only rank 0 is to be")
	}
	path, found := strings.CutPrefix(r.line("all of its output"), "  all of its output: host-a:")
	if !found {
		t.Fatalf("where is the file? %q", r.line("all of its output"))
	}
	text := on(t, bed.Host("host-a"), "cat", path)
	// The streams come by two pipes: their order in the file is not that of the writes.
	if whole := 48890 + len(traceback); len(text) != whole || !strings.Contains(text, traceback) || !strings.Contains(text, "step 4999\n") {
		t.Errorf("%s has %d bytes, want %d, and ends %q", path, len(text), whole, text[max(0, len(text)-200):])
	}
}

func TestExitStatusTellsHowTheFirstFailingRankEnded(t *testing.T) {
	bed := threeHosts(t)
	for _, c := range []struct {
		name, how, words string
		status           int
	}{
		{"all ended well", "exit 0", "all ranks ended well", 0},
		{"a status", "exit 42", "ended with exit status 42", 42},
		{"the highest status", "exit 255", "ended with exit status 255", 255},
		{"killed", "kill -KILL $$", "was killed by SIGKILL", 137},
		{"segmentation fault", "kill -SEGV $$", "was killed by SIGSEGV", 139},
		{"SIGTERM from elsewhere", "kill -TERM $$", "was killed by SIGTERM", 143},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed).sittingAt("host-z")
			u.runJob(job{script: "[ $RANK = 1 ] || exit 0\n" + c.how, perHost: 2}).exits(c.status).says(c.words)
		})
	}
	t.Run("over SSH", func(t *testing.T) {
		u := newUser(t, bed)
		u.runJob(job{script: "[ $RANK = 1 ] && kill -SEGV $$\nexec sleep 1000", hosts: []string{"host-z", "host-a"}}).exits(139).
			says("✗ rank 1 on host-a was killed by SIGSEGV", "rank 0: stopped by muster (SIGTERM)")
	})
}

func TestAProgramThatTheKernelCannotRunIsAFailedStart(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	for _, h := range bed.Hosts {
		on(t, h, "sh", "-c", "printf '#!/no/such/interpreter\n' >/root/odd; chmod +x /root/odd")
	}
	on(t, bed.Host("host-z"), "sh", "-c", "printf '#!/bin/sh\nexec sleep 1000\n' >/root/odd")
	u.runJob(job{command: []string{"./odd"}, hosts: []string{"host-z", "host-a"}}).exits(75).says("host-a", "/no/such/interpreter")
	u.runJob(job{command: []string{"./odd"}, hosts: []string{"host-z", "host-a"}}, "--no-check").exits(127).
		says("✗ rank 1 on host-a could not be started", "/root/odd", "rank 0: stopped by muster (SIGTERM)")
}

// reportIn reads the report of the latest run in a home.
func reportIn(t testing.TB, home string) map[string]any {
	t.Helper()
	var report map[string]any
	if err := json.Unmarshal([]byte(newest(t, home, "report.json")), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// B70
func TestLogsOfAttemptsAndHostsNeverOverwriteEachOther(t *testing.T) {
	bed := ownBed(t, testbed.Options{Hosts: 2, SharedHome: true})
	u := newUser(t, bed)
	want := map[string]bool{}
	for _, word := range []string{"first", "second"} {
		u.runJob(job{name: "same", script: "echo " + word + " run, rank $RANK on $(hostname)", hosts: []string{"node1", "node2"}, perHost: 2}).exits(0)
		for rank := range 4 {
			want[fmt.Sprintf("%s run, rank %d on node%d\n", word, rank, rank/2+1)] = true
		}
	}
	logs, err := filepath.Glob(filepath.Join(bed.Hosts[0].Home, ".local/state/muster/runs/same-*/*/attempt-0/rank-*.log"))
	if err != nil || len(logs) != len(want) {
		t.Fatalf("%d logs, want %d (%v): %q", len(logs), len(want), err, logs)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil || !want[string(text)] {
			t.Errorf("%s holds %q (%v)", path, text, err)
		}
		delete(want, string(text))
		if info, err := os.Stat(filepath.Dir(filepath.Dir(path))); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("others may look into the run's folder: %v %v", info.Mode(), err)
		}
	}
}
