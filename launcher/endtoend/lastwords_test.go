//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
)

func TestWhatAWorkerWroteLastIsInItsFile(t *testing.T) {
	bed := lend(t)
	four, one := []string{"host-z", "host-z", "host-a", "host-a"}, []string{"host-a"}
	for _, c := range []struct {
		name, end string
		ranks     []string // the host of each
	}{
		{"and exited", "exit 0", four},
		{"and was killed", "kill -KILL $$", one}, // the others would be stopped before they have written
		{"without a newline, over a progress bar", `printf '\r 99%%\r100%%'; exit 0`, four},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{script: "head -c 60000 /dev/zero | tr '\\0' x; printf 'last\n'; " + c.end, hosts: slices.Compact(slices.Clone(c.ranks)), perHost: (len(c.ranks) + 1) / 2})
			for rank, host := range c.ranks {
				log := newest(t, bed.Host(host).Home, fmt.Sprintf("attempt-0/rank-%d.log", rank))
				want := 60005
				if strings.Contains(c.end, "100") {
					want += len("\r 99%\r100%")
				}
				if len(log) != want || !strings.Contains(log, "x"+"last\n") {
					t.Errorf("the file of rank %d has %d bytes, want %d; muster said\n%s", rank, len(log), want, r.stderr)
				}
			}
		})
	}
}

// The agent, which moves output, is killed while the worker writes and right after.
func TestOutputIsKeptThoughTheAgentIsKilled(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	const lines = 400 // some 20 KiB: less than a pipe holds
	l := u.start("run", u.write(job{script: fmt.Sprintf(`
		cd %s
		trap 'echo last words; exit 0' TERM
		echo first
		touch ready-$RANK
		while [ ! -e stopped ]; do sleep 0.02; done
		[ $RANK = 1 ] || while :; do sleep 0.05; done
		i=0
		while [ $i -lt %d ]; do echo "line $i of many that nobody moves any more"; i=$((i+1)); done
		touch written
		while :; do sleep 0.05; done`, u.dir, lines), hosts: []string{"host-z", "host-a"}, more: longLease}))
	u.waitReady(2)
	moves := inRole(t, h, agent)
	signalTo(t, h, moves, syscall.SIGSTOP)
	u.file("stopped", "")
	u.waitFor("written")
	signalTo(t, h, moves, syscall.SIGKILL)
	l.waitFor(atOnce).exits(69)
	want := "first\n"
	for i := range lines {
		want += fmt.Sprintf("line %d of many that nobody moves any more\n", i)
	}
	if log := newest(t, h.Home, "attempt-0/rank-1.log"); log != want {
		t.Errorf("the file holds %d bytes, want %d, and ends %q", len(log), len(want), log[max(0, len(log)-200):])
	}
}

// smallDisk lays a file system of that size over a folder of a host.
func smallDisk(t *testing.T, h *testbed.Host, folder, size string) {
	t.Helper()
	on(t, h, "mkdir", "-p", folder)
	on(t, h, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", folder)
	t.Cleanup(func() { on(t, h, "umount", "-l", folder) })
}

// B69
func TestAFullLogDiskStopsNoTraining(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 3} {
		t.Run(fmt.Sprint("status ", status), func(t *testing.T) {
			bed := lend(t)
			u := newUser(t, bed)
			h := bed.Host("host-a")
			smallDisk(t, h, "/root/.local/state/muster/runs", "256k")
			r := u.runJob(job{script: fmt.Sprintf(`
				cd %s
				i=0
				while [ $i -lt 60 ]; do head -c 16384 /dev/zero | tr '\0' x; echo; i=$((i+1)); done
				touch done-$RANK
				while [ ! -e done-0 ] || [ ! -e done-1 ]; do sleep 0.05; done
				exit %d`, u.dir, status), hosts: []string{"host-z", "host-a"}, perHost: 1, more: "logs {\n show = \"none\"\n}"}).exits(status)
			if n := strings.Count(r.stderr, "its output cannot be kept any more"); n != 1 {
				t.Errorf("that the disk is full is said %d times:\n%s", n, r.stderr)
			}
			warnings := u.run("report", "-", "--json").exits(0).object("version", "run", "job", "outcome", "exit", "first_cause", "attempts", "ranks", "left", "warnings", "findings")["warnings"]
			if text := fmt.Sprint(warnings); strings.Count(text, "its output cannot be kept any more") != 1 || !strings.Contains(text, "no space left") {
				t.Errorf("the report warns of %s", text)
			}
		})
	}
}

func TestALogDiskThatIsFullFromTheStartStopsNoTraining(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	h := bed.Host("host-a")
	smallDisk(t, h, "/root/.local/state/muster/runs", "64k")
	on(t, h, "sh", "-c", "head -c 200000 /dev/zero >/root/.local/state/muster/runs/filler || true")
	r := u.runJob(job{script: "echo words", hosts: []string{"host-z", "host-a"}}).exits(0).says("host-a: rank 1: its output cannot be kept any more", "no space left")
	if !strings.Contains(r.stdout, "host-z:0| words") {
		t.Errorf("standard output is %q", r.stdout)
	}
}

func TestARemovedLogFolderStopsNoTraining(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir), hosts: []string{"host-z", "host-a"}, more: shortLease}))
	u.waitReady(2)
	id := strings.TrimSpace(strings.Split(u.run("ps").exits(0).stdout, "\n")[1])
	id, _, _ = strings.Cut(id, " ")
	removed := filepath.Join(bed.Host("host-a").Home, ".local/state/muster/runs", id)
	if err := os.RemoveAll(removed); err != nil {
		t.Fatal(err)
	}
	l.waitToSay("its output cannot be kept any more")
	pass(t, lease)
	u.file("end", "")
	r := l.wait().exits(0).says("was removed")
	if n := strings.Count(r.stderr, "its output cannot be kept any more"); n != 1 {
		t.Errorf("that the folder is gone is said %d times:\n%s", n, r.stderr)
	}
}

func TestARemovedLogFolderOfTheHeadHostStopsNoTraining(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(untilEnd, u.dir) + "\nexit 4", hosts: []string{"host-z", "host-a"}, more: shortLease}))
	u.waitReady(2)
	if err := os.RemoveAll(filepath.Join(bed.Host("host-z").Home, ".local/state/muster")); err != nil {
		t.Fatal(err)
	}
	l.waitToSay("its output cannot be kept any more")
	u.file("end", "")
	l.wait().exits(4)
}
