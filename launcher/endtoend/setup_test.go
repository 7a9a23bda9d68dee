//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"testing"
)

func TestSetupIsAScriptOfItsOwnAndItsExportsReachWorkers(t *testing.T) {
	bed := threeHosts(t)
	for _, c := range []struct{ name, text string }{
		{"plain", "export WORD=here"},
		{"with exit 0", "export WORD=here\nexit 0\nexport WORD=beyond"},
		{"with a comment at the end", "export WORD=here # and nothing more"},
		{"with a heredoc at the end", "export WORD=here\ncat <<END\ntext\nEND"},
		{"with set -eu", "set -eu\nexport WORD=here"},
		{"with set -eu and a pipe that fails softly", "set -euo pipefail\nfalse | true || export WORD=here"},
		{"that reads standard input", "export WORD=here\nread -r line || true\ncat"},
		{"with a trap of its own", "trap 'echo bye' EXIT\nexport WORD=here"},
		{"with set -a", "set -a\nWORD=here"},
		{"that returns", "export WORD=here\nreturn\nexport WORD=beyond"},
		{"that goes elsewhere", "cd /\nexport WORD=here"},
		{"with arguments of its own", "set -- a b\nexport WORD=here"},
		{"with a function called as ours", "f() { :; }\nexec 3>/dev/null\nexport WORD=here"},
		{"that leaves a daemon", "sleep 1000 >/dev/null 2>&1 &\nexport WORD=here"},
		{"that leaves a daemon holding its output", "sleep 1000 &\nexport WORD=here"},
		{"that closes its output", "exec >&- 2>&-\nexport WORD=here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed).sittingAt("host-a")
			// Nothing of what has run setup is in the environment.
			script := "pwd; echo word $WORD $#; env | grep -i '^muster' | cut -d= -f1 | sort"
			u.runJob(job{script: script, perHost: 2, more: setup(c.text)}).exits(0)
			want := u.dir + "\nword here 0\nMUSTER_ATTEMPT\nMUSTER_LOCAL_RANK\nMUSTER_RANK\nMUSTER_RUN\nMUSTER_SOCKET\nMUSTER_WORLD_SIZE\n"
			for rank := range 2 {
				got := newest(t, u.dir, fmt.Sprintf("attempt-0/rank-%d.log", rank))
				if got != want {
					t.Errorf("rank %d says %q, want %q", rank, got, want)
				}
			}
		})
	}
}

func TestSetupRunsOncePerHost(t *testing.T) {
	u := newUser(t, threeHosts(t))
	u.runJob(job{script: "true", hosts: three, perHost: 3, more: setup("echo $(hostname) >>" + u.path("setups"))}).exits(0)
	if lines := strings.Fields(u.read("setups")); len(lines) != 3 {
		t.Errorf("setup has run on %v", lines)
	}
}

func TestAFailingSetupStopsTheStartWithItsOutput(t *testing.T) {
	bed := threeHosts(t)
	for _, c := range []struct{ name, text, says string }{
		{"a status", "echo working; echo no such module >&2; exit 7", "setup ended with exit status 7"},
		{"set -e", "set -e; echo working; echo no such module >&2; false; true", "setup ended with exit status 1"},
		{"a signal", "echo working; echo no such module >&2; kill -KILL $$", "setup ended with killed by SIGKILL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed)
			r := u.runJob(job{
				script: "touch " + u.path("ran"), hosts: []string{"host-z", "host-a"},
				blocks: "host \"host-z\" {\n setup = \"true\"\n}", more: setup(c.text),
			}).exits(75).says("host-a: "+c.says, "working", "no such module")
			if u.exists("ran") {
				t.Error("a worker was started")
			}
			line := r.line("all of its output")
			_, path, _ := strings.Cut(line[strings.LastIndex(line, "host-a"):], "/")
			if log := on(t, bed.Host("host-a"), "cat", "/"+path); log != "working\nno such module\n" {
				t.Errorf("the log of setup holds %q", log)
			}
		})
	}
}

func TestACommandThatIsNotThereIsRefusedOnEveryHostAtOnce(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.runJob(job{command: []string{"no-such-program", "x"}, hosts: three}).exits(75).
		says("host-z: command:", "host-a: command:", "host-m: command:", "no-such-program")
	on(t, bed.Host("host-a"), "sh", "-c", "echo true >/root/not-executable")
	u.runJob(job{command: []string{"/root/not-executable"}, hosts: []string{"host-a"}}).exits(75).says("not executable")
	u.runJob(job{script: "true", hosts: []string{"host-z", "host-a"}, more: "workdir = \"~/not/there\""}).exits(75).
		says("host-z: workdir:", "host-a: workdir:", "/root/not/there")
}
