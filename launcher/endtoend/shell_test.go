//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// shell runs a script as the user would type it; $MUSTER is the program.
func (u *user) shell(script string) string {
	u.t.Helper()
	var out []byte
	err := u.there(func() (err error) {
		cmd := exec.CommandContext(u.t.Context(), "bash", "-c", script)
		cmd.Env, cmd.Dir = append(u.environ(), "MUSTER="+muster(u.t)), u.dir
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		u.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// B04
func TestTheExitStatusIsGoodForShells(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	bad := u.write(job{name: "bad", script: "[ $RANK = 1 ] && exit 3\nexec sleep 1000", hosts: []string{"host-z", "host-a"}})
	good := u.write(job{name: "good", script: "exit 0", hosts: []string{"host-z", "host-a"}})
	got := u.shell(fmt.Sprintf(`
		exec 2>/dev/null
		$MUSTER run %[1]s || echo "handled $?"
		$MUSTER run %[2]s && echo went well
		if ! $MUSTER run %[1]s; then echo not so; fi
		( set -e; $MUSTER run %[1]s; echo never )
		echo "left by set -e: $?"
		$MUSTER run %[1]s | cat; echo "pipe ${PIPESTATUS[0]}"
		$MUSTER run %[1]s & wait $!; echo "background $?"
		! $MUSTER run %[1]s; echo "turned round $?"`, bad, good))
	want := "handled 3\nwent well\nnot so\nleft by set -e: 3\npipe 3\nbackground 3\nturned round 0\n"
	if got != want {
		t.Errorf("the shell says\n%s, want\n%s", got, want)
	}
}

// B80
func TestALoopOverALineOfJobsGetsToItsEnd(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.write(job{name: "remote", script: "cat; echo ran", hosts: []string{"host-a"}})
	list := u.file("list", strings.Repeat(u.path("remote.hcl")+"\n", 3))
	got := u.shell("while read -r job; do $MUSTER run $job 2>/dev/null; $MUSTER status - >/dev/null; $MUSTER logs - >/dev/null; done <" + list)
	if got != strings.Repeat("host-a:0| ran\n", 3) {
		t.Errorf("the loop printed %q", got)
	}
}

func TestMusterIsGoodAsProcessOneOfAContainer(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed).sittingAt("host-m")
	u.under = []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	u.runJob(job{script: "[ $RANK = 1 ] && exit 3\nexec sleep 1000", perHost: 2}).exits(3)
	u.runJob(job{script: fmt.Sprintf(daemon, u.dir, "") + "exit 0", perHost: 2, more: "stop {\n grace = \"300ms\"\n}"}).exits(0).
		says("outlived the rank and was ended")
	u.runJob(job{script: "kill -SEGV $$", perHost: 2}).exits(139)

	l := u.start("run", u.write(job{script: "cat /proc/1/cmdline | tr '\\0' ' '; " + fmt.Sprintf(obedient, u.dir), perHost: 2}))
	u.waitReady(2)
	// By its number on the machine: it is in a namespace of its own, below unshare.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", l.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(mustInt(t, string(children)), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := l.wait().exits(130)
	if !strings.Contains(r.stdout, "| "+muster(t)+" run") {
		t.Errorf("process 1 was not muster: %q", r.stdout)
	}
}
