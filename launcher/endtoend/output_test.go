//go:build linux

package endtoend

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// talkative writes each line in two calls, the streams in turn.
const talkative = `
i=0
while [ $i -lt %d ]; do
	printf 'out %%s ' $RANK; printf '%%s end\n' $i
	printf 'err %%s ' $RANK >&2; printf '%%s end\n' $i >&2
	i=$((i+1))
done
`

var talk = regexp.MustCompile(`^([^:]+):(\d+)\| (out|err) (\d+) (\d+) end$`)

// checkTalk checks that each of the ranks' lines stands in a stream once, whole, in the
// rank's own order, behind the rank's prefix.
func checkTalk(t *testing.T, text, stream string, lines int, hostOf map[string]string) {
	t.Helper()
	next := map[string]int{}
	for line := range strings.Lines(text) {
		m := talk.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if strings.HasPrefix(line, "muster: ") {
			continue
		}
		if m == nil {
			t.Fatalf("a line is not whole: %q", line)
		}
		if m[3] != stream || m[2] != m[4] || m[1] != hostOf[m[2]] || m[5] != fmt.Sprint(next[m[2]]) {
			t.Fatalf("%q among the lines of std%s; of rank %s line %d is next, and it runs on %s", line, stream, m[2], next[m[2]], hostOf[m[2]])
		}
		next[m[2]]++
	}
	for rank := range hostOf {
		if next[rank] != lines {
			t.Errorf("rank %s has %d lines on std%s, want %d", rank, next[rank], stream, lines)
		}
	}
}

func TestLinesOfManyRanksAreNeverMixed(t *testing.T) {
	const lines = 2000
	u := newUser(t, threeHosts(t))
	r := u.runJob(job{script: fmt.Sprintf(talkative, lines), hosts: []string{"host-z", "host-a"}, perHost: 4}).exits(0)
	hostOf := map[string]string{}
	for rank := range 8 {
		hostOf[fmt.Sprint(rank)] = []string{"host-z", "host-a"}[rank/4]
	}
	checkTalk(t, r.stdout, "out", lines, hostOf)
	checkTalk(t, r.stderr, "err", lines, hostOf)
}

func TestOnlyTheRanksThatAreAskedForAreShown(t *testing.T) {
	bed := threeHosts(t)
	for _, c := range []struct {
		name, more string
		args       []string
		want       []string
	}{
		{"all, unless said otherwise", "", nil, []string{"0", "1", "2", "3", "4", "5"}},
		{"logs.show", "logs {\n show = \"1,4-5\"\n}", nil, []string{"1", "4", "5"}},
		{"logs.show none", "logs {\n show = \"none\"\n}", nil, nil},
		{"--ranks wins over logs.show", "logs {\n show = \"none\"\n}", []string{"--ranks", "0,3-5"}, []string{"0", "3", "4", "5"}},
		{"--ranks=all", "logs {\n show = [2]\n}", []string{"--ranks=all"}, []string{"0", "1", "2", "3", "4", "5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, bed).sittingAt("host-m")
			r := u.runJob(job{script: fmt.Sprintf(talkative, 3), perHost: 6, more: c.more}, c.args...).exits(0)
			hostOf := map[string]string{}
			for _, rank := range c.want {
				hostOf[rank] = "localhost"
			}
			checkTalk(t, r.stdout, "out", 3, hostOf)
			checkTalk(t, r.stderr, "err", 3, hostOf)
			for rank := range 6 {
				log := newest(t, u.dir, fmt.Sprintf("attempt-0/rank-%d.log", rank))
				if n := strings.Count(log, "\n"); n != 6 {
					t.Errorf("the file of rank %d has %d lines", rank, n)
				}
			}
		})
	}
	t.Run("--ranks with nonsense", func(t *testing.T) {
		u := newUser(t, bed).sittingAt("host-m")
		u.runJob(job{script: "touch " + u.path("ran")}, "--ranks", "5-3").exits(64).says("5-3")
		if u.exists("ran") {
			t.Error("a worker was started")
		}
	})
}

func TestAClosedPipeNeitherStopsNorFailsWorkers(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	l := u.startInto(write, "run", u.write(job{
		script: fmt.Sprintf("echo first; while [ ! -e %[1]s/closed ]; do sleep 0.02; done\n"+talkative+"touch %[1]s/done-$RANK", u.dir, 500),
		hosts:  []string{"host-z", "host-a"},
	}))
	write.Close()
	if line, err := bufio.NewReaderSize(read, 16).ReadString('\n'); err != nil || !strings.HasSuffix(line, "first\n") {
		t.Fatalf("the first line is %q: %v", line, err)
	}
	read.Close() // as head -n1 does
	u.file("closed", "")
	r := l.wait().exits(0)
	if !u.exists("done-0") || !u.exists("done-1") {
		t.Error("the workers have not got to their end")
	}
	r.says("all ranks ended well", "err 1 499 end")
}

// floodsUnread runs four ranks that write so many lines each, and waits until they have
// written all of it while nobody reads what muster shows.
func floodsUnread(t *testing.T, lines int, padding string) (*user, *launch, *os.File) {
	t.Helper()
	u := newUser(t, threeHosts(t))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close() })
	l := u.startInto(write, "run", u.write(job{
		script: fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo %s $i; i=$((i+1)); done; touch %s/done-$RANK", lines, padding, u.dir),
		hosts:  []string{"host-z", "host-a"}, perHost: 2,
	}))
	write.Close()
	u.waitFor("done-0", "done-1", "done-2", "done-3")
	return u, l, read
}

func TestATerminalThatNobodyReadsDoesNotHoldUpWorkers(t *testing.T) {
	const lines = 4000 // some 100 KiB of each rank and stream: more than pipes, sockets and windows between hold
	padding := strings.Repeat("x", 1000)
	_, l, read := floodsUnread(t, lines, padding)
	select {
	case <-l.ended:
		t.Fatal("muster has ended before anybody has read what it shows")
	default:
	}
	shown, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(shown), padding); n != 4*lines {
		t.Errorf("%d lines are shown, want %d", n, 4*lines)
	}
	l.wait().exits(0)
}

func TestARunEndsThoughNobodyReadsAndWhoReadsLaterGetsEveryLine(t *testing.T) {
	const lines = 4000
	padding := strings.Repeat("x", 1000)
	u, l, read := floodsUnread(t, lines, padding)
	eventually(t, "the run is over", func() bool { return u.run("report", "-").status == 0 })
	l.waitToSay("waits for being read here")
	shown, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	for line := range strings.Lines(string(shown)) {
		prefix, rest, _ := strings.Cut(line, "| ")
		if want := fmt.Sprintf("%s %d\n", padding, next[prefix]); rest != want {
			t.Fatalf("%s has %q, want %q", prefix, rest, want)
		}
		next[prefix]++
	}
	for rank, host := range []string{"host-z", "host-z", "host-a", "host-a"} {
		if n := next[fmt.Sprintf("%s:%d", host, rank)]; n != lines {
			t.Errorf("rank %d has %d lines, want %d", rank, n, lines)
		}
	}
	l.wait().exits(0).says("has ended before all of its output was read here", "all ranks ended well")
}

// B33's neighbour: what is kept is what was written.
func TestTheFileOfARankHoldsEveryByteThatItWrote(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	content := "plain\n\xff\xfe\x80\x00\x00\x1b[31mred\x1b[0m\r\rprogress 10%\rprogress 20%\r\n\n\n\té 漢\x07\x1b]0;title\x07\nno newline at the end"
	u.file("bytes", content)
	u.runJob(job{script: "cat " + u.path("bytes") + "; cat " + u.path("bytes") + " >&2", hosts: []string{"host-z", "host-a"}}).exits(0)
	for rank, name := range []string{"host-z", "host-a"} {
		if got := newest(t, bed.Host(name).Home, fmt.Sprintf("attempt-0/rank-%d.log", rank)); got != content+content {
			t.Errorf("the file of rank %d holds\n%q, want\n%q", rank, got, content+content)
		}
	}
}

func TestWhatAWorkerPrintsIsShownAsItIsWhereNoTerminalIs(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-a")
	u.file("bytes", "\xff\xfe\x80\x00\x1b[31mred\x1b[0m\nlast")
	r := u.runJob(job{script: "cat " + u.path("bytes")}).exits(0)
	if want := "localhost:0| \xff\xfe\x80\x00\x1b[31mred\x1b[0m\nlocalhost:0| last\n"; r.stdout != want {
		t.Errorf("standard output is %q, want %q", r.stdout, want)
	}
}

func TestARunThatIsOverAtOnceIsShownAllTheSame(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-z")
	path := u.write(job{command: []string{"echo", "here"}, perHost: 2})
	refused := u.write(job{name: "refused", command: []string{"no-such-program"}})
	// All at once, so that some launchers get to look late.
	var runs, refusals []*launch
	for range 4 {
		runs, refusals = append(runs, u.start("run", path)), append(refusals, u.start("run", refused))
	}
	for _, l := range runs {
		if r := l.wait().exits(0); strings.Count(r.stdout, "| here\n") != 2 {
			t.Errorf("it has shown %q", r.stdout)
		}
	}
	for _, l := range refusals {
		l.wait().exits(75).says("localhost: command:")
	}
}

func TestTheExampleOfTheREADMERuns(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-z")
	text, err := os.ReadFile(filepath.Join(tree, "examples", "local.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	r := u.run("run", u.file("local.hcl", string(text))).exits(0)
	for rank := range 4 {
		if want := fmt.Sprintf("localhost:%d| rank %d of 4 on host-z, to meet at 127.0.0.1:", rank, rank); !strings.Contains(r.stdout, want) {
			t.Errorf("standard output lacks %q:\n%s", want, r.stdout)
		}
	}
}
