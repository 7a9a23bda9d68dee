//go:build linux

package endtoend

import (
	"fmt"
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
