//go:build linux

package mps

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
)

// Two daemons of a host may be lost at once, and the host is asked to serve for each of them.
func TestServe_CommandsAtOnceMakeOneDaemonForADevice(t *testing.T) {
	reaper, err := proc.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 0.2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ds := New(Config{Reaper: reaper})
	var all sync.WaitGroup
	for number := range 3 {
		all.Go(func() {
			served := ds.Serve(&message.Serve{Number: number, Program: program, Daemons: []message.MPSDaemon{
				{Device: "GPU-a", Name: "GPU 0", Existing: t.TempDir()},
			}})
			if served.Error != "" {
				t.Error(served.Error)
			}
		})
	}
	all.Wait()
	if n := len(ds.daemons()); n != 1 {
		t.Errorf("%d daemons serve it", n)
	}
}
