//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestPlanShowsWhatWouldRunAndStartsNothing(t *testing.T) {
	u := newUser(t, threeHosts(t))
	path := u.write(job{script: "touch " + u.path("ran"), hosts: three, perHost: 2,
		more: "env = { SHARD = rank.global % 4 }" + setup("touch "+u.path("ran"))})
	r := u.run("plan", path).exits(0)
	for rank := range 6 {
		found := false
		for line := range strings.Lines(r.stdout) {
			fields := strings.Fields(line)
			found = found || len(fields) >= 3 && fields[0] == fmt.Sprint(rank) && fields[1] == three[rank/2] && fields[2] == fmt.Sprint(rank%2)
		}
		if !found {
			t.Errorf("the table lacks rank %d:\n%s", rank, r.stdout)
		}
	}
	var plan struct {
		Version   int
		Job       string
		WorldSize int `json:"world_size"`
		Ranks     []struct {
			Rank      int
			LocalRank int `json:"local_rank"`
			Host      string
			Env       map[string]struct{ Value, Source string }
		}
	}
	if err := json.Unmarshal([]byte(u.run("plan", path, "--json").exits(0).stdout), &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Version != 1 || plan.Job != "t" || plan.WorldSize != 6 || len(plan.Ranks) != 6 {
		t.Fatalf("the plan is %+v", plan)
	}
	last := plan.Ranks[5]
	if shard := last.Env["SHARD"]; last.Rank != 5 || last.Host != "host-m" || shard.Value != "1" || !strings.HasPrefix(shard.Source, path+":") {
		t.Errorf("the last rank is %+v", last)
	}
	if u.exists("ran") {
		t.Error("plan has run something of the job")
	}
}

func TestFlagsMayFollowTheJobFile(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-z")
	path := u.file("t.hcl", `variable "word" {}
variable "list" { default = "none" }
job "t" {
  command = ["echo", var.word, var.list]
  hosts "local" {}
  ranks { per_host = 2 }
}`)
	r := u.run("run", path, "-var", "word=a b", "--ranks", "1", "--var=list=x,y=z", "--", "--ranks", "0").exits(0)
	if want := "localhost:1| a b x,y=z --ranks 0\n"; r.stdout != want {
		t.Errorf("standard output is %q, want %q", r.stdout, want)
	}
	u.run("run", path).exits(78).says("word")
	u.run("run", path, "-var", "word=x", "-var", "wrod=y").exits(78).says("wrod")
}

func TestVersionAndHelpReadWell(t *testing.T) {
	u := newUser(t, threeHosts(t))
	if r := u.run("version").exits(0); !strings.HasPrefix(r.stdout, "muster ") || !strings.Contains(r.stdout, "linux/") {
		t.Errorf("version says %q", r.stdout)
	}
	for _, args := range [][]string{{"--help"}, {}, {"run", "--help"}, {"plan", "--help"}} {
		r := u.run(args...).exits(0)
		if !strings.Contains(r.stdout, "muster run") && !strings.Contains(r.stdout, "muster plan") || r.stderr != "" {
			t.Errorf("muster %v says %q and %q", args, r.stdout, r.stderr)
		}
	}
}
