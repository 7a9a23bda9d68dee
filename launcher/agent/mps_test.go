//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muster-dev/muster/launcher/message"
)

// Two daemons of a host may be lost at once, for each of which the host is asked to serve.
func TestOrdersToServeAtOnceMakeOneDaemonForADevice(t *testing.T) {
	reaper, err := theReaper()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 0.2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := &agent{reaper: reaper}
	var all sync.WaitGroup
	for number := range 3 {
		all.Go(func() {
			o := &message.Serve{Number: number, Program: program, Daemons: []message.MPSDaemon{{Device: "GPU-a", Name: "GPU 0", Existing: t.TempDir()}}}
			if s := a.serve(o); s.Error != "" {
				t.Error(s.Error)
			}
		})
	}
	all.Wait()
	if n := len(a.mps.daemons()); n != 1 {
		t.Errorf("%d daemons serve it", n)
	}
}
