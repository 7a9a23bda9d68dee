//go:build linux

package endtoend

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// B05
func TestTheEmergencyCheckpointHasItsDataLoaders(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.file("loader.sh", "trap 'echo told to end >>"+u.path("loaders-told")+"; exit 1' TERM\nwhile :; do sleep 0.05; done")
	l := u.start("run", u.write(job{script: fmt.Sprintf(`
		cd %s
		sh ./loader.sh & loader=$!
		trap 'sleep 1; kill -0 $loader && echo saved with its loader >saved-$RANK; exit 0' TERM
		touch ready-$RANK
		while :; do sleep 0.05; done`, u.dir), hosts: []string{"host-z", "host-a"}, more: longLease + "stop {\n grace = \"60s\"\n}"}))
	u.waitReady(2)
	l.signal(syscall.SIGTERM)
	r := l.waitFor(atOnce).exits(143)
	for rank := range 2 {
		if !u.exists(fmt.Sprintf("saved-%d", rank)) {
			t.Errorf("rank %d has saved nothing; muster said:\n%s", rank, r.stderr)
		}
	}
	r.says("ranks 0-1: stopped by muster (SIGTERM)")
}

// B05, B37
func TestAShellWrapperPassesTheStopOnByItsGroup(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	u.file("train.sh", fmt.Sprintf("cd %s; trap 'sleep 1; echo saved >saved-$RANK; exit 0' TERM; touch ready-$RANK; while :; do sleep 0.05; done", u.dir))
	l := u.start("run", u.write(job{script: "sh " + u.path("train.sh") + "\nexit $?", hosts: []string{"host-z", "host-a"},
		more: longLease + "stop {\n grace = \"60s\"\n}"}))
	u.waitReady(2)
	l.signal(syscall.SIGTERM)
	l.waitFor(atOnce).exits(143)
	for rank := range 2 {
		if !u.exists(fmt.Sprintf("saved-%d", rank)) {
			t.Errorf("rank %d has saved nothing", rank)
		}
	}
}

func TestTheStopSignalIsTheJobFiles(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(`
		cd %s
		trap 'echo TERM >>told-$RANK' TERM
		trap 'echo USR1 >>told-$RANK; exit 0' USR1
		touch ready-$RANK
		while :; do sleep 0.05; done`, u.dir), hosts: []string{"host-z", "host-a"}, more: longLease + "stop {\n signal = \"SIGUSR1\"\n grace = \"60s\"\n}"}))
	u.waitReady(2)
	l.signal(syscall.SIGINT)
	l.waitFor(atOnce).exits(130).says("ranks 0-1: stopped by muster (SIGUSR1)")
	for rank := range 2 {
		if got := u.read(fmt.Sprintf("told-%d", rank)); got != "USR1\n" {
			t.Errorf("rank %d was told %q", rank, got)
		}
	}
}

// B05
func TestACheckpointThatTakesTooLongIsCutAndThatIsSaid(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: fmt.Sprintf(`
		cd %s
		trap 'touch saving-$RANK; sleep 1000; touch saved-$RANK' TERM
		touch ready-$RANK
		while :; do sleep 0.05; done`, u.dir), hosts: []string{"host-z", "host-a"}, more: longLease + "stop {\n grace = \"2s\"\n}"}))
	u.waitReady(2)
	l.signal(syscall.SIGTERM)
	r := l.waitFor(atOnce).exits(143).says("SIGKILL in 2s to what is left", "ranks 0-1: stopped by muster (SIGKILL)")
	if !u.exists("saving-0") || !u.exists("saving-1") || strings.Contains(r.stderr, "(SIGTERM)") {
		t.Error("the workers were not told to end before they were killed")
	}
}
