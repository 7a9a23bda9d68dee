//go:build linux

package endtoend

import (
	"fmt"
	"testing"
)

func TestARankThatEndsWhileOthersRunOnIsSaidAndThenAFailure(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	r := u.runJob(job{script: "[ $RANK = 1 ] && exit 0" + fmt.Sprintf(obedient, u.dir), hosts: three,
		more: longLease + "early_exit {\n notice = \"500ms\"\n limit = \"2s\"\n}"}).exits(124)
	r.says("warning: rank 1 ended well", "but ranks 0, 2 still run; the run fails when that lasts for 2s",
		"✗ rank 1 ended well 2s ago, but ranks 0, 2 still run", "ranks 0,2: stopped by muster (SIGTERM)")
	report := u.run("report", "-", "--json").exits(0).object("version", "run", "job", "outcome", "exit", "first_cause", "attempts", "ranks", "left", "warnings", "findings")
	if cause := report["first_cause"].(map[string]any); report["outcome"] != "failed" || cause["class"] != "early_exit" {
		t.Errorf("the report has outcome %v and cause %v", report["outcome"], cause)
	}
}

func TestRanksThatEndUnevenlyButWellAreNoFailure(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	l := u.start("run", u.write(job{script: "[ $RANK = 1 ] && exit 0\n" + fmt.Sprintf(untilEnd, u.dir), hosts: three,
		more: "early_exit {\n notice = \"300ms\"\n limit = \"10m\"\n}"}))
	l.waitToSay("rank 1 ended well")
	u.file("end", "")
	l.wait().exits(0).says("all ranks ended well")
}
