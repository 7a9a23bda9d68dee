//go:build linux

package proc

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// KillBelow kills everything that descends from this process, again and again
// while new processes show up, until nothing is left or the time is over. It
// returns what is left (state D, usually). The caller is a subreaper, so that
// nothing escapes by losing its parent, and reaps meanwhile.
func KillBelow(limit time.Duration, spare func(Stat) bool) []Stat {
	deadline := time.Now().Add(limit)
	for {
		var left []Stat
		for _, s := range Below(os.Getpid(), All()) {
			if spare == nil || !spare(s) {
				left = append(left, s)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		for _, s := range left {
			_ = Signal(s.ID, unix.SIGKILL) // what resists shows in the next round
		}
		time.Sleep(2 * time.Millisecond)
	}
}
