package remote

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Whatever became of a connection, no goroutine of it stays.
func TestNoGoroutineIsLeft(t *testing.T) {
	_, inner, c := farm(t)
	before := ours()
	d := c.dialer()
	for _, target := range []Target{{Name: "gpu01"}, inner.target()} {
		h, err := d.Connect(bounded(t), target)
		must(t, err)
		output(t, begin(t, h, agentLaunch("pwd")))
		begin(t, h, agentLaunch("sleep"))
		conn, err := h.DialUnix(bounded(t), echoSocket(t))
		must(t, err)
		must(t, conn.Close())
		must(t, h.Close())
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	d.Connect(short, Target{Name: "gpu01"})
	waitFor(t, "the goroutines to end", func() bool { return ours() <= before })
}

// ours counts goroutines of this package and of the library below it.
func ours() int {
	buffer := make([]byte, 1<<20)
	count := 0
	for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "crypto/ssh.") || strings.Contains(stack, "remote.(*sshHost)") || strings.Contains(stack, "remote.(*hop)") {
			count++
		}
	}
	return count
}
