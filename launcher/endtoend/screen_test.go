//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"testing"
)

func TestInATerminalPrefixesAreColouredAndWorkersCannotDrawElsewhere(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.file("bytes", "\x1b[31mred\x1b[0m \x1b[2Jgone\x07 \xff\n")
	term := u.inTerminal(muster(t), "run", u.write(job{
		script: fmt.Sprintf("cd %[1]s; cat bytes; trap 'touch int' INT; trap 'echo saving; exit 0' TERM; touch ready; while :; do sleep 0.02; done", u.dir),
		hosts:  []string{"host-z"},
	}))
	u.waitFor("ready")
	term.shows("\x1b[36mhost-z:0|\x1b[0m \x1b[31mred\x1b[0m ^[[2Jgone^G \\xff")
	term.typeKeys("\x03")
	term.wait().exits(130)
	term.shows("stopped: Ctrl-C")
	if !strings.Contains(term.stdout.String(), "saving") {
		t.Errorf("the last words are not shown:\n%s", term.stdout)
	}
	if u.exists("int") {
		t.Error("Ctrl-C came to the worker by itself")
	}
}
