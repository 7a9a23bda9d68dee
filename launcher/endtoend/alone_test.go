//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// alone is a job whose ranks do not talk to each other.
const alone = `mode = "independent"
  stop { grace = "2s" }
`

type aloneReport struct {
	Outcome    string
	Exit       int
	FirstCause *struct {
		Class, Message, Host string
		Rank                 *int
	} `json:"first_cause"`
	Ranks []struct {
		Rank    int
		Host    string
		Outcome string
		Task    []string
		Ends    []struct {
			Attempt, Exit           int
			Class, Decision, Reason string
			Changes                 map[string]string
			StoppedByMuster         string `json:"stopped_by_muster"`
		}
	}
}

func (u *user) aloneReport() (r aloneReport) {
	u.t.Helper()
	if err := json.Unmarshal([]byte(u.run("report", "-", "--json").exits(0).stdout), &r); err != nil {
		u.t.Fatal(err)
	}
	return r
}

// outcomes are what became of the ranks, in their order.
func (r aloneReport) outcomes() string {
	var words []string
	for _, rank := range r.Ranks {
		words = append(words, rank.Outcome)
	}
	return strings.Join(words, " ")
}

// attempts is how often each rank was started.
func (r aloneReport) attempts() (counts []int) {
	for _, rank := range r.Ranks {
		counts = append(counts, len(rank.Ends))
	}
	return counts
}

func TestAnIndependentRankThatFailsLeavesTheOthersAlone(t *testing.T) {
	u := newUser(t, lend(t))
	script := fmt.Sprintf(`if [ $MUSTER_RANK = 1 ]; then touch %[1]s/failed; exit 5; fi
until [ -e %[1]s/failed ]; do sleep 0.05; done; sleep 0.3; echo rank $MUSTER_RANK is done`, u.dir)
	r := u.runJob(job{script: script, hosts: three, more: alone}).exits(5)
	r.says("✗ rank 1 on host-a ended with exit status 5", "of 3 ranks: 2 ended well, 1 failed (1)").prints("rank 0 is done", "rank 2 is done")
	if rep := u.aloneReport(); rep.outcomes() != "ok failed ok" || rep.FirstCause == nil || rep.FirstCause.Class != "exit" {
		t.Errorf("the report has %+v", rep)
	}
}

func TestAnIndependentRankRestartsAloneByItsRules(t *testing.T) {
	u := newUser(t, lend(t))
	script := fmt.Sprintf(`echo $MUSTER_ATTEMPT $AGAIN >>%[1]s/attempts-$MUSTER_RANK
[ "$MUSTER_RANK $MUSTER_ATTEMPT" != "1 0" ] || exit 5
[ $MUSTER_RANK = 1 ] || until [ -e %[1]s/again ]; do sleep 0.05; done
[ $MUSTER_RANK != 1 ] || touch %[1]s/again`, u.dir)
	u.runJob(job{script: script, hosts: three, more: alone + `
  restart {
    attempts = 2
    on "exit" { env = { AGAIN = rank.global } }
  }`}).exits(0).says("starting again: restart 1 of 2 in this rank", "all ranks ended well")
	rep := u.aloneReport()
	if got := rep.attempts(); !slices.Equal(got, []int{1, 2, 1}) || rep.outcomes() != "ok ok ok" {
		t.Errorf("the ranks were started %v times, and became %s", got, rep.outcomes())
	}
	if first := rep.Ranks[1].Ends[0]; first.Class != "exit" || first.Decision != "restart" || first.Changes["AGAIN"] == "" {
		t.Errorf("its first end is %+v", first)
	}
	if got := u.read("attempts-1"); got != "0\n1 1\n" {
		t.Errorf("rank 1 has seen %q", got)
	}
}

// A launcher that is slow has not shown all of an attempt when the next one writes.
func TestAttemptsOfARankAreShownOneAfterTheOther(t *testing.T) {
	const many, more = 100000, 100100
	u := newUser(t, lend(t))
	script := fmt.Sprintf(`cd %s
if [ $MUSTER_ATTEMPT = 0 ]; then
	touch ready
	until [ -e go ]; do sleep 0.05; done
	seq %d; exit 5
fi
seq %d %d; touch again`, u.dir, many, many+1, more)
	l := u.start("run", u.write(job{script: script, hosts: []string{"host-a"}, more: alone + `
  restart {
    attempts = 2
    on "exit" { env = { AGAIN = 1 } }
  }`}))
	u.waitFor("ready")
	l.signal(syscall.SIGSTOP)
	u.file("go", "")
	u.waitFor("again")
	l.signal(syscall.SIGCONT)
	r := l.wait().exits(0)
	next := 1
	for line := range strings.Lines(r.stdout) {
		if want := fmt.Sprintf("host-a:0| %d\n", next); line != want {
			t.Fatalf("%q is shown where %q was due", line, want)
		}
		next++
	}
	if next != more+1 {
		t.Errorf("%d lines are shown, want %d", next-1, more)
	}
}

// A library that finds a part of torchrun's contract takes itself for one of many, and
// waits for the others.
func TestIndependentRanksGetNothingThatWouldHaveThemWaitForOthers(t *testing.T) {
	u := newUser(t, lend(t))
	u.env = []string{"RANK=7", "WORLD_SIZE=9", "MASTER_ADDR=elsewhere"}
	u.runJob(job{script: "env >" + u.path("env-$MUSTER_RANK"), hosts: []string{"host-z"}, perHost: 2, more: alone}).exits(0)
	text := "\n" + u.read("env-1")
	for _, name := range []string{"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "GROUP_RANK"} {
		if strings.Contains(text, "\n"+name+"=") {
			t.Errorf("%s is set", name)
		}
	}
	for _, entry := range []string{"MUSTER_RANK=1", "MUSTER_WORLD_SIZE=2", "MUSTER_LOCAL_RANK=1", "MUSTER_ATTEMPT=0"} {
		if !strings.Contains(text, "\n"+entry+"\n") {
			t.Errorf("%s is missing", entry)
		}
	}
}

// tasksOf is a job of so many tasks.
func tasksOf(n int) string {
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf("[\"--seed\", %d]", i))
	}
	return alone + "  tasks = [" + strings.Join(words, ", ") + "]\n"
}

func TestEachTaskIsDoneOnceByThePlaceThatIsFree(t *testing.T) {
	u := newUser(t, lend(t))
	script := fmt.Sprintf(`echo "$MUSTER_RANK $*" >>%[1]s/done
n=$(mktemp %[1]s/runs.XXXXXX); ls %[1]s/runs.* | wc -l >>%[1]s/together; sleep 0.1; rm $n
echo task $MUSTER_RANK says so`, u.dir)
	r := u.runJob(job{script: script, hosts: three, perHost: 2, more: tasksOf(20)}).exits(0).says("20 tasks, 6 at a time, on 3 hosts", "all tasks ended well")
	lines := strings.Split(strings.TrimSpace(u.read("done")), "\n")
	slices.Sort(lines)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("%d --seed %d", i, i))
		r.prints(fmt.Sprintf(":%d| task %d says so", i, i))
	}
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("done was %q, want %q", lines, want)
	}
	for n := range strings.Lines(u.read("together")) {
		if n = strings.TrimSpace(n); len(n) > 1 || n > "6" {
			t.Errorf("%s ran at a time", n)
		}
	}
	rep := u.aloneReport()
	if len(rep.Ranks) != 20 || !slices.Equal(rep.Ranks[7].Task, []string{"--seed", "7"}) || rep.Ranks[19].Host == "" {
		t.Errorf("the report has %+v", rep.Ranks)
	}
	// What a task wrote can be read afterwards, wherever it ran.
	u.run("logs", "-", "--rank", "13").exits(0).prints("task 13 says so")
}

func TestATaskThatFailsDoesNotEndTheOthers(t *testing.T) {
	u := newUser(t, lend(t))
	u.runJob(job{script: "[ $MUSTER_RANK != 2 ] || { echo out of luck >&2; exit 9; }", hosts: []string{"host-a"}, perHost: 2, more: tasksOf(7)}).exits(9).
		says("✗ task 2 on host-a ended with exit status 9", "out of luck", "of 7 tasks: 6 ended well, 1 failed (2)")
}

func TestADrainLetsRunningTasksEndAndStartsNoMore(t *testing.T) {
	u := newUser(t, lend(t))
	script := fmt.Sprintf("touch %[1]s/ready-$MUSTER_RANK\nuntil [ -e %[1]s/go ]; do sleep 0.05; done", u.dir)
	l := u.start("run", u.write(job{script: script, hosts: []string{"host-z", "host-a"}, more: tasksOf(5)}))
	l.waitRunning(u, 2)
	stop := u.start("stop", "-", "--drain")
	eventually(t, "the drain is told", func() bool { return strings.Contains(l.stderr.String(), "nothing more is started") })
	u.file("go", "")
	stop.wait().exits(0)
	l.wait().exits(143).says("not done: 3 of 5 tasks", "2 ended well, 3 not started (2-4)")
	if rep := u.aloneReport(); rep.outcomes() != "ok ok not_run not_run not_run" || rep.Outcome != "stopped" {
		t.Errorf("the report has %+v", rep)
	}
	// Ranks that work together have nothing to drain, and go on.
	l = u.start("run", u.write(job{script: fmt.Sprintf(obedient, u.dir+"/x"), hosts: []string{"host-z"}, more: longLease}))
	u.waitCommitted(l)
	u.run("stop", "-", "--drain").exits(64).says("work together")
	u.run("stop", "-").exits(0)
	l.wait()
}

// waitCommitted waits until a launcher's run has been committed, by what status says.
func (u *user) waitCommitted(l *launch) {
	u.t.Helper()
	eventually(u.t, "the run goes on", func() bool {
		return strings.Contains(u.run("status", "-").stdout, ": running")
	})
}

func TestCtrlCEndsIndependentRanksAndStartsNoMore(t *testing.T) {
	u := newUser(t, lend(t))
	script := fmt.Sprintf("trap 'exit 0' TERM\ntouch %[1]s/ready-$MUSTER_RANK\nwhile :; do sleep 0.05; done", u.dir)
	l := u.start("run", u.write(job{script: script, hosts: []string{"host-z", "host-a"}, more: tasksOf(5)}))
	l.waitRunning(u, 2)
	l.signal(syscall.SIGINT)
	l.waitFor(atOnce).exits(130).says("of 5 tasks: 2 stopped (0-1), 3 not started (2-4)")
}

// A host that is lost takes its own work along, and no other's.
func TestALostHostTakesItsOwnTasksOnly(t *testing.T) {
	bed := lend(t)
	u := newUser(t, bed)
	script := fmt.Sprintf("touch %[1]s/ready-$MUSTER_RANK\nuntil [ -e %[1]s/go ]; do sleep 0.05; done; echo $MUSTER_RANK >>%[1]s/done", u.dir)
	l := u.start("run", u.write(job{script: script, hosts: three, more: tasksOf(8)}))
	l.waitRunning(u, 3)
	h := bed.Host("host-a")
	signalTo(t, h, inRole(t, h, agent), syscall.SIGKILL)
	eventually(t, "the loss is told", func() bool { return strings.Contains(l.stderr.String(), "the agent on host-a died") })
	u.file("go", "")
	l.wait().exits(69).says("the agent on host-a died", "of 8 tasks: 7 ended well, 1 failed (1)")
	if lines := strings.Count(u.read("done"), "\n"); lines != 7 {
		t.Errorf("%d tasks were done, want 7", lines)
	}
}
