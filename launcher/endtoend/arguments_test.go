//go:build linux

package endtoend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// difficultWords are those of report B21.
var difficultWords = []string{
	"--a=x y", "--b", "x y", "", `a"b`, "it's", "$HOME", "`id`", "*", "new\nline", "tab\t", "--", "é 漢",
	"${HOME}", "%{x}", `back\slash`, "!!", "~", "#", "-", "{a,b}",
}

// dumpSelf leaves what the kernel was told when the worker was started: argument vector
// and environment as they are, not as a shell or a library reads them.
const dumpSelf = `
cat /proc/$$/cmdline >%[1]s/argv-$RANK
cat /proc/$$/environ >%[1]s/environ-$RANK
`

// zeroEnded splits what the kernel keeps of a process.
func zeroEnded(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// B21
func TestArgumentsReachEveryRankByteForByte(t *testing.T) {
	for _, hosts := range [][]string{nil, three} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, threeHosts(t))
			if hosts == nil {
				u.sittingAt("host-z")
			}
			script := u.file("dump.sh", fmt.Sprintf(dumpSelf, u.dir))
			command := append([]string{"sh", script}, difficultWords...)
			after := []string{"--lr", "3e-4", "", "a b", "--", "$X", "-var", "--ranks"}
			u.runJob(job{command: command, hosts: hosts, perHost: 2}, append([]string{"--"}, after...)...).exits(0)
			want := append(command, after...)
			for rank := range 2 * max(1, len(hosts)) {
				if got := zeroEnded(u.read(fmt.Sprintf("argv-%d", rank))); !slices.Equal(got, want) {
					t.Errorf("rank %d got\n%q, want\n%q", rank, got, want)
				}
			}
		})
	}
}

func where(hosts []string) string {
	if hosts == nil {
		return "local"
	}
	return "ssh"
}
