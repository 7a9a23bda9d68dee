//go:build linux

package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

func TestWhatALoginLeftBehindDoesNotReachWorkers(t *testing.T) {
	env := environ.Host([]string{"PATH=/bin", "SSH_AUTH_SOCK=/x", "RANK=7", "TORCHELASTIC_RUN_ID=old", "MUSTER_RUN=outer", "A=b=c", "BASH_FUNC_f%%=() { :; }", "broken"})
	want := []string{"A=b=c", "BASH_FUNC_f%%=() { :; }", "PATH=/bin"}
	if got := environ.Layered(env); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHigherLayersWin(t *testing.T) {
	got := environ.Layered(map[string]string{"A": "default", "B": "default"}, map[string]string{"A": "host"}, map[string]string{"C": "plan"})
	if want := []string{"A=host", "B=default", "C=plan"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgramsAreFoundByTheWorkersPath(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("run", 0o755)
	write("plain", 0o644)
	for program, want := range map[string]string{"run": filepath.Join(dir, "run"), "./run": filepath.Join(dir, "run"), "plain": "", "./plain": "", "nothing": "", "/": ""} {
		got, err := lookPath(program, []string{"PATH=/nowhere:" + dir}, dir)
		if (err == nil) != (want != "") || want != "" && got != want {
			t.Errorf("%s: %q, %v", program, got, err)
		}
	}
}

func TestAHeldPortIsRankZerosAlone(t *testing.T) {
	hold, err := holdPort(21000, 21999, [2]int{32768, 60999})
	if err != nil {
		t.Fatal(err)
	}
	defer hold.release()
	if second, err := holdOne(hold.port); err == nil {
		second.release()
		t.Error("two runs hold one port")
	}
	if hold.letGoOnceTaken() {
		t.Error("let go before anybody listens")
	}
	// Go's listener sets SO_REUSEADDR, as PyTorch's store does.
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", hold.port))
	if err != nil {
		t.Fatalf("rank 0 cannot listen: %v", err)
	}
	defer l.Close()
	if !hold.letGoOnceTaken() {
		t.Error("still held though somebody listens")
	}
	if second, err := holdOne(hold.port); err == nil {
		second.release()
		t.Error("the lock among runs was let go with the sockets")
	}
}

func TestPortsOfOutgoingConnectionsAreLeftAlone(t *testing.T) {
	if _, err := holdPort(33000, 33100, [2]int{32768, 60999}); err == nil || !strings.Contains(err.Error(), "ephemeral range") {
		t.Errorf("error %v", err)
	}
	hold, err := holdPort(32760, 32800, [2]int{32768, 60999})
	if err != nil {
		t.Fatal(err)
	}
	defer hold.release()
	if hold.port >= 32768 {
		t.Errorf("port %d is ephemeral", hold.port)
	}
}

func TestABusyPinnedPortNamesItsHolder(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = holdPort(port, port, [2]int{1, 2})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("error %v", err)
	}
}

// setup runs text as the agent does and returns what it leaves and what it says.
func setup(t *testing.T, text string) (map[string]string, string) {
	t.Helper()
	a := &agent{loop: loop.New(), place: rundir.Place{State: t.TempDir(), Sockets: t.TempDir(), Program: keeper.Program([]string{"-env"})}, reaper: reaper(t)}
	env, news := a.runSetup(text, t.TempDir(), map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/h"})
	return env, news.Error + string(news.Output)
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
