//go:build linux

package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// As parts that are stopped, but nothing ends these.
func TestAPartThatCannotBeEndedIsLostAfterTheLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, host string
		status     int
		says       string
	}{
		{agent, "host-a", 69, "host-a"},
		{keeper, "host-a", 69, "host-a"},
		{agent, "host-z", 69, "host-z"},
		{keeper, "host-z", 69, "host-z"},
	} {
		t.Run(c.part+" of "+c.host, func(t *testing.T) {
			bed, u, l := runOnThree(t, shortLease)
			h := bed.Host(c.host)
			began := time.Now()
			thaw := freeze(t, inRole(t, h, c.part)[0])
			defer thaw()
			r := l.wait()
			t.Log(time.Since(began), r.stderr)
			r.exits(c.status).says(c.says)
			for _, name := range three {
				u.gone(bed.Host(name), 5*lease)
			}
			thaw()
			nothingLeft(t, bed)
		})
	}
}

// A file system that hangs on one host keeps nobody from the others' output, nor waiting.
func TestLogsThatCannotBeReadAreGivenUp(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.runJob(job{script: "echo words", hosts: []string{"host-z", "host-a"}}).exits(0)
	_, path, _ := strings.Cut(u.lastReport().Ranks[1].Ends[0].Log, "/root/")
	path = filepath.Join(bed.Host("host-a").Home, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil { // to open it waits for a writer
		t.Fatal(err)
	}
	r := u.run("logs", "-").exits(69).says("host-a: no answer for 30s: perhaps a file system there hangs")
	if !strings.Contains(r.stdout, "host-z:0| words") {
		t.Errorf("the other host's output is missing: %q", r.stdout)
	}
}
