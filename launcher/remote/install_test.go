package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// loginShell makes sshd run commands as a user's login shell would be told to.
func loginShell(shell string) string {
	return `ForceCommand exec ` + shell + ` -c "$SSH_ORIGINAL_COMMAND"`
}

// shells are the login shells that users have, with the package that brings them.
var shells = map[string]string{
	"/bin/bash": "bash", "/bin/dash": "dash", "/usr/bin/zsh": "zsh", "/usr/bin/fish": "fish",
	"/bin/bsd-csh": "csh", "/bin/tcsh": "tcsh", "/bin/busybox sh": "busybox",
}

var awkward = []string{"--plain=x", "", "two words", `it's "quoted" $HOME ` + "`id`" + ` \ \\ \n !! % %s %d ; & | > < * ? ~ # (x) [y] {z}`, "grün 日本", "-n", "{not a program}"}

func TestLoginShells(t *testing.T) {
	for shell, pkg := range shells {
		t.Run(strings.ReplaceAll(shell[1:], "/", "-"), func(t *testing.T) {
			if _, err := os.Stat(strings.Fields(shell)[0]); err != nil {
				t.Skipf("%s is not here: apt-get install %s", shell, pkg)
			}
			s, c := pair(t, loginShell(shell))
			h := connect(t, c.dialer(), s.target())
			p := begin(t, h, Launch{Program: "muster-agent", Also: []string{"muster"}, Args: append([]string{"args", "{muster}"}, awkward...)})
			got := strings.Split(strings.TrimSuffix(output(t, p), "\n"), "\n")
			must(t, p.Wait())
			if len(got) != len(awkward)+1 || !strings.HasPrefix(got[0], "<"+s.cache+"/muster/bin/muster-") {
				t.Fatalf("arguments %q", got)
			}
			for i, want := range awkward {
				if got[i+1] != "<"+want+">" {
					t.Errorf("argument %q became %s", want, got[i+1])
				}
			}
			out, err := exec.Command(strings.Trim(got[0], "<>")).Output()
			if err != nil || string(out) != "muster\n" {
				t.Fatalf("the second program: %q, %v", out, err)
			}
		})
	}
}

func TestWordsBeforeTheProgramAreLeftOut(t *testing.T) {
	s, c := pair(t, `ForceCommand echo "Welcome to gpu03!"; echo "n=x exec /tmp"; printf "no line end"; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"`)
	h := connect(t, c.dialer(), s.target())
	if text := output(t, begin(t, h, agentLaunch("pwd"))); text != "/root\n" {
		t.Fatalf("output %q", text)
	}
}

func startFails(t *testing.T, h Host, launch Launch, kind Kind, words ...string) {
	t.Helper()
	p, err := h.Start(bounded(t), launch)
	if err == nil {
		p.Close()
		t.Fatal("started")
	}
	var failed *StartError
	if !errors.As(err, &failed) || failed.Kind != kind {
		t.Fatalf("want kind %s: %v", kind, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q lacks %q", err, word)
		}
	}
	t.Logf("%v", err)
}

func TestShellThatRunsNothing(t *testing.T) {
	s, c := pair(t, `ForceCommand echo "This account is not available."; echo "go away" >&2; exit 3`)
	startFails(t, connect(t, c.dialer(), s.target()), agentLaunch(), KindShell, "not available", "go away", "exit status 3")
}

func TestShellThatHangs(t *testing.T) {
	s, c := pair(t, `ForceCommand echo "loading modules"; exec sleep 60`)
	d := c.dialer()
	d.StartTimeout = 5 * time.Second
	startFails(t, connect(t, d, s.target()), agentLaunch(), KindShell, "said nothing for 5s", "loading modules")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := connect(t, c.dialer(), s.target()).Start(ctx, agentLaunch())
	var failed *StartError
	if !errors.As(err, &failed) || failed.Kind != KindCanceled {
		t.Fatalf("error %v", err)
	}
}

// bigPrograms are of a size that gzip cannot shrink much.
func bigPrograms(size int) fakePrograms {
	noise := make([]byte, size*3/4)
	rand.NewChaCha8([32]byte{}).Read(noise)
	text := "#!/bin/sh\necho hello; exit 0\n#" + base64.StdEncoding.EncodeToString(noise)
	return fakePrograms{"muster-agent": text, "muster": text + "#"}
}

// noLeftovers checks that so many programs are installed and nothing else.
func noLeftovers(t *testing.T, cache string, programs int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cache, "muster/bin"))
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left over: %s", e.Name())
		}
	}
	if len(entries) != programs {
		t.Errorf("in the cache: %v", entries)
	}
}

func TestUnsupportedPlatform(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	d.Programs = elsewhere{testPrograms()}
	startFails(t, connect(t, d, s.target()), agentLaunch(), KindPlatform, "127.0.0.1 is "+ownMachine(t), "carries linux/riscv64")
}

// elsewhere carries programs for a machine that is not here.
type elsewhere struct{ fakePrograms }

func (elsewhere) Platforms(string) [][2]string { return [][2]string{{"linux", "riscv64"}} }

func TestProgramsThatAreNotThere(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	startFails(t, h, Launch{Program: "nonsense"}, KindProgram, "nonsense")
	startFails(t, h, Launch{Program: "muster-agent", Args: []string{"{muster}"}}, KindProgram, "{muster}")
	startFails(t, h, Launch{Program: "muster-agent", Args: []string{"a\nb"}}, KindProgram, "control character")
}

// Hosts with a shared home, and several runs, install at the same time.
func TestConcurrentStarts(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	d.Programs = bigPrograms(1 << 20)
	var seen progress
	d.Progress = &seen
	var work sync.WaitGroup
	for range 4 {
		h := connect(t, d, s.target())
		for range 2 {
			work.Go(func() {
				p, err := h.Start(bounded(t), Launch{Program: "muster-agent", Also: []string{"muster"}})
				if err != nil {
					t.Error(err)
					return
				}
				if text := output(t, p); text != "hello\n" {
					t.Errorf("output %q", text)
				}
				if err := p.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	work.Wait()
	noLeftovers(t, s.cache, 2)
	if !seen.complete["muster-agent"] || !seen.complete["muster"] {
		t.Errorf("progress %v", seen.complete)
	}
}

type progress struct {
	mu       sync.Mutex
	complete map[string]bool
}

func (p *progress) Upload(_, program string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.complete == nil {
		p.complete = map[string]bool{}
	}
	p.complete[program] = done == total
}

func TestHostWithoutGzip(t *testing.T) {
	bin := t.TempDir()
	for _, tool := range []string{"mkdir", "rm", "head", "wc", "chmod", "mv", "uname", "cat"} {
		path, err := exec.LookPath(tool)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(bin, tool)))
	}
	s, c := pair(t, `ForceCommand PATH=`+bin+`; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"`)
	h := connect(t, c.dialer(), s.target())
	if text := output(t, begin(t, h, agentLaunch("args", "x"))); text != "<x>\n" {
		t.Fatalf("output %q", text)
	}
	noLeftovers(t, s.cache, 1)
}

// What a crash or a broken connection leaves is not run.
func TestHalfProgramsAreReplaced(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	output(t, begin(t, h, agentLaunch("pwd")))
	files, err := filepath.Glob(filepath.Join(s.cache, "muster/bin/*"))
	must(t, err)
	must(t, os.Truncate(files[0], 0))
	if text := output(t, begin(t, h, agentLaunch("pwd"))); text != "/root\n" {
		t.Fatalf("output %q", text)
	}
}

// breaker closes the connection in the middle of an upload.
type breaker struct {
	once sync.Once
	host chan Host
	done chan struct{}
}

func (p *breaker) Upload(_, _ string, done, total int64) {
	if done < total {
		p.once.Do(func() {
			go func() {
				defer close(p.done)
				(<-p.host).Close()
			}()
		})
	}
}

func TestBrokenUploadLeavesNothing(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	d.Programs = bigPrograms(8 << 20)
	p := &breaker{host: make(chan Host, 1), done: make(chan struct{})}
	d.Progress = p
	h := connect(t, d, s.target())
	p.host <- h
	startFails(t, h, agentLaunch(), KindLost)
	<-p.done
	waitFor(t, "the host to clean up", func() bool {
		entries, err := os.ReadDir(filepath.Join(s.cache, "muster/bin"))
		return err == nil && len(entries) == 0
	})
}

// waitFor polls a state of the machine that tells nobody of its changes.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A program of several MB that stands in travels whole and gets its first argument.
func TestStandInIsInstalled(t *testing.T) {
	s, c := pair(t)
	d := c.dialer()
	var err error
	d.Programs, err = NewCarried(fstest.MapFS{})
	must(t, err)
	p := begin(t, connect(t, d, s.target()), Launch{Program: "muster-agent", Also: []string{"muster"}, Args: []string{"{muster}", "x"}})
	if got := output(t, p); got != fmt.Sprintf("%q", []string{"agent", s.cache + "/muster/bin/muster-" + hashOf(t, d.Programs), "x"}) {
		t.Fatalf("arguments %s", got)
	}
	noLeftovers(t, s.cache, 2)
}

func hashOf(t *testing.T, programs Programs) string {
	t.Helper()
	b, err := programs.Find("muster", runtime.GOOS, runtime.GOARCH)
	must(t, err)
	return b.Hash
}
