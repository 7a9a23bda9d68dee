//go:build linux

package agent

import (
	"os"
	"sync"
	"testing"

	"github.com/muster-dev/muster/launcher/proc"
)

// TestMain stands in for muster-agent where setup has its environment written down.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-env" {
		os.Exit(Main(nil, os.Args[2:]))
	}
	os.Exit(m.Run())
}

// theReaper is one for all tests: a process has one.
var theReaper = sync.OnceValues(proc.NewReaper)

func reaper(t *testing.T) *proc.Reaper {
	t.Helper()
	r, err := theReaper()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
