//go:build linux

package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestWhatIsLeftOfAGroupDiesWithItsLeader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	child, err := theReaper().Start(Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "sleep 1000 & echo $! >" + file}, Env: os.Environ(), Group: true, GroupDies: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, child)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := StatOf(pid)
		if err != nil || s.State == 'Z' {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("pid %d lives on: %+v", pid, s)
		}
	}
}
