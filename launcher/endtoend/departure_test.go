//go:build linux

package endtoend

import (
	"fmt"
	"syscall"
	"testing"
)

func TestALauncherKilledBeforeTheStartLeavesNothing(t *testing.T) {
	bed := threeHosts(t)
	for _, hosts := range [][]string{nil, {"host-z", "host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			names := hosts
			if hosts == nil {
				u.sittingAt("host-z")
				names = []string{"host-z"}
			}
			l := u.start("run", u.write(job{script: "touch " + u.path("ran"), hosts: hosts,
				more: "lease = \"3s\"" + setup("touch "+u.path("setup-$(hostname)")+"\nsleep 1000")}))
			for _, name := range names {
				u.waitFor("setup-" + name)
			}
			l.signal(syscall.SIGKILL)
			<-l.ended
			nothingLeft(t, bed)
			if u.exists("ran") {
				t.Error("a worker was started")
			}
		})
	}
}

func TestALauncherKilledAfterTheStartLeavesTheRunToItsHosts(t *testing.T) {
	bed := threeHosts(t)
	for _, hosts := range [][]string{nil, {"host-z", "host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			if hosts == nil {
				u.sittingAt("host-z")
			}
			l := u.start("run", u.write(job{
				script: fmt.Sprintf("cd %s; touch began-$RANK; while [ ! -e go-on ]; do sleep 0.02; done; echo $RANK is done; touch done-$RANK", u.dir),
				hosts:  hosts, perHost: 2 / max(1, len(hosts)), more: "lease = \"3s\"",
			}))
			u.waitFor("began-0", "began-1")
			l.signal(syscall.SIGKILL)
			<-l.ended
			u.file("go-on", "")
			u.waitFor("done-0", "done-1")
			nothingLeft(t, bed)
			home := bed.Host("host-z").Home
			if hosts == nil {
				home = u.dir
			}
			report := reportIn(t, home)
			if report["outcome"] != "ok" || report["exit"] != 0.0 {
				t.Errorf("the report says %v %v", report["outcome"], report["exit"])
			}
		})
	}
}

func TestAClosedTerminalLeavesTheRunToItsHosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		deaf   bool
		status int
	}{{"SIGHUP", false, 129}, {"SIGHUP under nohup", true, 0}} {
		t.Run(c.name, func(t *testing.T) {
			bed := threeHosts(t)
			u := newUser(t, bed)
			u.deaf = c.deaf
			l := u.start("run", u.write(job{hosts: []string{"host-a", "host-z"},
				script: fmt.Sprintf("cd %s; echo began; touch began-$RANK; while [ ! -e go-on ]; do sleep 0.02; done; touch done-$RANK", u.dir)}))
			u.waitFor("began-0", "began-1")
			l.signal(syscall.SIGHUP)
			if !c.deaf {
				l.wait().exits(c.status)
			}
			u.file("go-on", "")
			u.waitFor("done-0", "done-1")
			l.wait().exits(c.status)
			nothingLeft(t, bed)
			if report := reportIn(t, bed.Host("host-a").Home); report["outcome"] != "ok" {
				t.Errorf("the report says %v", report["outcome"])
			}
		})
	}
}
