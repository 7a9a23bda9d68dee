//go:build linux

package endtoend

import (
	"fmt"
	"testing"
	"time"
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
			bed := lend(t)
			u := newUser(t, bed)
			l := u.start("run", u.write(job{script: fmt.Sprintf(obedient, u.dir), hosts: three, more: shortLease}))
			l.waitRunning(u, 3)
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
