//go:build linux

package testbed

import (
	"os"
	"os/signal"
	"syscall"
)

// DefaultSignals undoes an inherited ignore of signals for the processes that this one
// starts: under nohup, or in the background of a script, tests would otherwise hand it on
// and find that a closed terminal or a Ctrl-C does nothing. A TestMain calls it first.
func DefaultSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			// A signal that is caught has its default in a program started by exec; this
			// process itself still pays it no attention.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
