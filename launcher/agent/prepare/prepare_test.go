//go:build linux

package prepare

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/oneshot"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

func TestAWaitIsSaidEachTimeItHasDoubled(t *testing.T) {
	done := make(chan struct{})
	var said []time.Duration
	awaitPatiently(done, time.Millisecond, func(passed time.Duration) {
		if said = append(said, passed/time.Millisecond); len(said) == 4 {
			close(done)
		}
	})
	if !slices.Equal(said, []time.Duration{1, 2, 4, 8}) {
		t.Errorf("said after %v ms", said)
	}
}

func TestTheLastLineThatSaysSomethingIsQuoted(t *testing.T) {
	for text, want := range map[string]string{"": "", "\n\n": "", "one\ntwo\n\n": "two", "one": "one"} {
		if got := lastLine([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestMain stands in for muster-agent where setup has its environment written down.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-env" {
		if err := oneshot.Environ(os.Args[3:]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// theReaper is one for all tests: a process has one.
var theReaper = sync.OnceValues(proc.NewReaper)

func reaper(t *testing.T) *proc.Reaper {
	t.Helper()
	r, err := theReaper()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// setup runs text as the agent does and returns what it leaves and what it says.
func setup(t *testing.T, text string) (map[string]string, string) {
	t.Helper()
	h := Host{Place: rundir.Place{State: t.TempDir(), Sockets: t.TempDir(), Program: keeper.Program([]string{"-env"})}, Reaper: reaper(t)}
	r := Result{Workdir: t.TempDir(), Base: map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/h"}}
	if err := h.setup(text, &r); err != nil {
		return nil, err.Error() + string(r.Output)
	}
	return r.Base, string(r.Output)
}

func TestSetupsExportsReachTheWorkers(t *testing.T) {
	for name, text := range map[string]string{
		"plain":                 "export A=1",
		"with a comment at end": "export A=1 # done",
		"with exit 0":           "export A=1; exit 0; export A=2",
		"with strict options":   "set -euo pipefail\nexport A=1",
		"with a heredoc":        "cat > /dev/null <<'X'\nexport A=2\nX\nexport A=1",
		"that reads stdin":      "read -r x || true; export A=1",
		"that sets parameters":  "set -- a b c; export A=$#; [ $A = 3 ] && export A=1",
		"with a daemon":         "sleep 60 & export A=1",
	} {
		t.Run(name, func(t *testing.T) {
			env, said := setup(t, text)
			if env["A"] != "1" || env["HOME"] != "/h" {
				t.Errorf("A=%q HOME=%q; %s", env["A"], env["HOME"], said)
			}
		})
	}
	if left := proc.KillBelow(5*time.Second, nil); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAFailedSetupSaysHow(t *testing.T) {
	for text, want := range map[string]string{
		"echo no such disk >&2; exit 3":  "exit status 3no such disk",
		"set -e\nfalse\nexport A=1":      "exit status 1",
		"source /nowhere.sh && export A": "exit status 1",
		"trap : EXIT\nexit 0":            "EXIT trap",
		"export A=(":                     "exit status",
	} {
		if env, said := setup(t, text); env != nil || !strings.Contains(said, want) {
			t.Errorf("%q: said %q, want %q", text, said, want)
		}
	}
}
