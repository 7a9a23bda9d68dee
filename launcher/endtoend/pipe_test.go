//go:build linux

package endtoend

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A reader that has enough is no error, and nobody goes on for it: head is quiet, and comes
// back while the run goes on.
func TestAReaderThatHasEnoughIsNoError(t *testing.T) {
	u := newUser(t, lend(t))
	script := `i=0; while [ $i -lt 40000 ]; do echo "a line of rank $RANK, number $i"; i=$((i+1)); done` + fmt.Sprintf(obedient, u.dir)
	u.runJob(job{script: script, hosts: []string{"host-z"}, perHost: 2}, "--detach").exits(0)
	u.waitReady(2)
	got := u.shell(`
		quiet() { timeout 60 $MUSTER "$@" 2>errors | head -n 1 >line; echo "$1 ${PIPESTATUS[0]} $(wc -l <line) $(cat errors)"; }
		quiet logs -
		quiet logs - -f
		quiet status - --json
		quiet top - --json
		quiet ps`)
	if want := "logs 0 1 \nlogs 0 1 \nstatus 0 1 \ntop 0 1 \nps 0 1 \n"; got != want {
		t.Errorf("the shell says\n%swant\n%s", got, want)
	}
	u.run("stop", "-").exits(0)
	got = u.shell(`
		timeout 60 $MUSTER top - --series 2>&1 >/dev/full | head -n 5 # a full disk is said
		timeout 60 $MUSTER top - --series 2>errors | :; echo "series ${PIPESTATUS[0]} $(cat errors)"`)
	if want := "muster: write /dev/stdout: no space left on device\nseries 0 \n"; got != want {
		t.Errorf("the shell says\n%swant\n%s", got, want)
	}
}

// A full disk where the output goes is no end of a run, but no secret either.
func TestOutputThatCannotBeWrittenIsSaid(t *testing.T) {
	u := newUser(t, threeHosts(t))
	out, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for _, status := range []int{1, 0} {
		r := u.startInto(out, "run", u.write(job{script: fmt.Sprintf("echo one; echo two; exit %d", status), hosts: []string{"host-z", "host-a"}})).wait().exits(status)
		r.says("warning: the output cannot be written: write /dev/stdout: no space left on device")
		if n := strings.Count(r.stderr, "no space left"); n != 2-status { // at a good end again
			t.Errorf("it is said %d times:\n%s", n, r.stderr)
		}
	}
	if logs := u.run("logs", "-").exits(0).stdout; strings.Count(logs, "two\n") != 2 {
		t.Errorf("muster logs shows\n%s", logs)
	}
	u.startInto(out, "logs", "-").wait().exits(70).says("muster: write /dev/stdout: no space left on device")
}
