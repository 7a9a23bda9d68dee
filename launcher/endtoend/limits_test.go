//go:build linux

package endtoend

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// mostOpenFiles is how far muster raises the limit of open files.
const mostOpenFiles = 1 << 20

// lowLimits are what a session may be started with, and more is allowed than that: the
// words of prlimit(1).
var lowLimits = []string{"--nofile=256:", "--memlock=65536:", "--stack=4194304:"}

// limitsOf reads /proc/PID/limits: soft and hard ones by their names there; -1 is no limit.
func limitsOf(t *testing.T, text string) map[string][2]int64 {
	t.Helper()
	limits := map[string][2]int64{}
	for line := range strings.Lines(text) {
		if len(line) < 60 || strings.HasPrefix(line, "Limit ") {
			continue
		}
		var both [2]int64
		for i, word := range strings.Fields(line[26:])[:2] {
			n, err := strconv.ParseInt(word, 10, 64)
			if both[i] = n; err != nil {
				both[i] = -1
			}
		}
		limits[strings.TrimSpace(line[:26])] = both
	}
	return limits
}

// B74
func TestWorkersMayUseWhatTheHostAllowsWhateverTheirSessionBeganWith(t *testing.T) {
	bed := threeHosts(t)
	host := bed.Host("host-a")
	for name, hosts := range map[string][]string{"localhost": nil, "host-a": {"host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			if hosts == nil {
				u.sittingAt("host-a")
				u.under = append([]string{"prlimit"}, lowLimits...)
			} else {
				// Sessions have the limits of sshd.
				before := limitsOf(t, on(t, host, "sh", "-c", "cat /proc/$(cat /run/sshd.pid)/limits"))
				set := func(words ...string) {
					on(t, host, "sh", "-c", "exec prlimit --pid $(cat /run/sshd.pid) "+strings.Join(words, " "))
				}
				set(lowLimits...)
				t.Cleanup(func() {
					for option, limit := range map[string]string{"nofile": "Max open files", "memlock": "Max locked memory", "stack": "Max stack size"} {
						soft := fmt.Sprint(before[limit][0])
						if soft == "-1" {
							soft = "unlimited"
						}
						set("--" + option + "=" + soft + ":")
					}
				})
				if got := openSSH(t, bed, host, "ulimit -Sn"); got != "256\n" {
					t.Fatalf("a login may open %q files", got)
				}
			}
			// No shell in between.
			r := u.runJob(job{command: []string{"cat", "/proc/self/limits"}, hosts: hosts}).exits(0)
			got := limitsOf(t, strings.Join(r.linesOf(name, 0), "\n"))
			if files := got["Max open files"]; files[1] <= 256 && files[1] >= 0 || files[0] != min(files[1], mostOpenFiles) && (files[1] >= 0 || files[0] != mostOpenFiles) {
				t.Errorf("a worker may open %d files, and %d are allowed", files[0], files[1])
			}
			if memory := got["Max locked memory"]; memory[0] != memory[1] || memory[1] == 65536 {
				t.Errorf("a worker may lock %d bytes, and %d are allowed", memory[0], memory[1])
			}
			if stack := got["Max stack size"]; stack[0] != 4194304 {
				t.Errorf("a worker's stack may have %d bytes, and the session's 4194304", stack[0])
			}
		})
	}
}
