//go:build linux

package external

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

// stage is a plugin under test, and what is checked about it at the end.
type stage struct {
	*Prober
	t    *testing.T
	mark string // in the environment of all its processes
	dir  string
}

// startOf makes a Prober of the test binary in a part.
func startOf(t *testing.T, part string, args ...string) *stage {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, Program{Path: self, Args: append([]string{"play", part}, args...)}, Children{})
}

func startProgram(t *testing.T, p Program, s Starter) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mark := "MUSTER_TEST_MARK=" + rand.Text()
	p.Name, p.SocketDir, p.Env = "test", dir, append(p.Env, mark, "GORACE=atexit_sleep_ms=0")
	st := &stage{Prober: New(p, s), t: t, mark: mark, dir: dir}
	t.Cleanup(st.leavesNothing)
	return st
}

// leavesNothing closes the Prober and looks for what is left of it.
func (s *stage) leavesNothing() {
	if err := s.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	left, _ := os.ReadDir(s.dir)
	if len(left) > 0 {
		s.t.Errorf("left in the folder of sockets: %v", left)
	}
	if pids := marked(s.mark); len(pids) > 0 {
		s.t.Errorf("processes %v are left", pids)
	}
	if pids := childrenOf(os.Getpid()); len(pids) > 0 {
		s.t.Errorf("children %v are left", pids)
	}
	eventually(s.t, "its goroutines are gone", func() bool { return len(goroutines()) == 0 })
}

// goroutines lists those that a Prober or go-plugin started.
func goroutines() (found []string) {
	buffer := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		ours := strings.Contains(g, "external.(*") || strings.Contains(g, "go-plugin") || strings.Contains(g, "grpc")
		if ours && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "testing.runTests") {
			found = append(found, g)
		}
	}
	return found
}

// marked lists the processes that have this in their environment.
func marked(mark string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && bytes.Contains(text, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf lists all children, the dead ones too.
func childrenOf(parent int) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(10 * time.Second); ; {
		if is() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Errorf("not within 10 s: %s\n%s", what, strings.Join(goroutines(), "\n\n"))
			return
		}
	}
}

// fails makes one Probe and checks its error.
func (s *stage) fails(kind Kind, words ...string) {
	s.t.Helper()
	_, err := s.Probe(s.t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind {
		s.t.Fatalf("not a %s error: %v", kind, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	s.t.Log(err)
}

func (s *stage) works() *gpu.Inventory {
	s.t.Helper()
	g, err := s.Probe(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if g.Source != "test" || len(g.GPUs) != 2 || g.Links[0][1] != "NV1" || g.GPUs[0].Why["memory.total"] == "" || g.Why["driver"] == "" {
		s.t.Errorf("answer %+v", g)
	}
	return g
}

func TestAPluginAnswersAndItsProcessIsKept(t *testing.T) {
	s := startOf(t, "good")
	first, second := s.works(), s.works()
	if first.Notes[0] != second.Notes[0] {
		t.Errorf("processes %s and %s", first.Notes, second.Notes)
	}
}

func TestAPluginIsStartedAnewAfterItDied(t *testing.T) {
	s := startOf(t, "good")
	first := s.works()
	pid, _ := strconv.Atoi(first.Notes[0])
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	process.Kill()
	eventually(t, "its death is seen", func() bool { return within(s.session.process.done, 0) })
	if second := s.works(); first.Notes[0] == second.Notes[0] {
		t.Error("the same process")
	}
}

func TestConcurrentProbesShareOneProcess(t *testing.T) {
	s := startOf(t, "good")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { s.works() })
	}
	all.Wait()
	if pids := marked(s.mark); len(pids) != 1 {
		t.Errorf("processes %v", pids)
	}
}

func TestAScriptIsAPlugin(t *testing.T) {
	self, _ := os.Executable()
	path := filepath.Join(t.TempDir(), "plugin")
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = arg ] || exit 9\nexec %s play good\n", self)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	startProgram(t, Program{Path: path, Args: []string{"arg"}, SHA256: strings.ToUpper(hex.EncodeToString(sum[:]))}, Children{}).works()
}

func TestThePluginsEnvironmentIsWhatIsGivenToIt(t *testing.T) {
	t.Setenv("MUSTER_TEST_SECRET", "x")
	s := startOf(t, "good")
	s.works()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", marked(s.mark)[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range strings.Split(strings.TrimRight(string(text), "\x00"), "\x00") {
		name, _, _ := strings.Cut(v, "=")
		if name != "MUSTER_TEST_MARK" && name != "GORACE" && name != cookieKey && !strings.HasPrefix(name, "PLUGIN_") && strings.ToUpper(name) == name {
			t.Errorf("variable %s", v)
		}
	}
}

func TestWhatIsNoProgramIsSaid(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		program Program
		kind    Kind
		words   string
	}{
		"missing":        {Program{Path: dir + "/none"}, KindFailed, "no such file"},
		"relative":       {Program{Path: "none"}, KindFailed, "not absolute"},
		"folder":         {Program{Path: dir}, KindFailed, "folder"},
		"not executable": {Program{Path: file("a", "#!/bin/sh\n", 0o644)}, KindFailed, "chmod"},
		"no format":      {Program{Path: file("b", "echo\n", 0o755)}, KindFailed, "another machine"},
		"no interpreter": {Program{Path: file("c", "#!/no/such/loader\n", 0o755)}, KindFailed, "interpreter"},
		"other sum":      {Program{Path: file("d", "#!/bin/sh\n", 0o755), SHA256: strings.Repeat("0123", 16)}, KindFailed, "says 012301230123…: if you changed it"},
		"device":         {Program{Path: "/dev/null"}, KindFailed, "not a file"},
	} {
		t.Run(name, func(t *testing.T) { startProgram(t, c.program, Children{}).fails(c.kind, c.words) })
	}
}

func TestWhatDoesNotStartIsSaid(t *testing.T) {
	const glibc = "x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by x)"
	for name, c := range map[string]struct {
		part  string
		args  []string
		kind  Kind
		words []string
	}{
		"another program":    {"prints", []string{"hello"}, KindFailed, []string{`"hello"`}},
		"one that stays":     {"prints-and-stays", []string{"hello"}, KindFailed, []string{`"hello"`}},
		"a long line":        {"prints-and-stays", []string{strings.Repeat("x", 100_000)}, KindFailed, []string{`"xxx`}},
		"silence":            {"prints", nil, KindFailed, []string{"printed nothing"}},
		"silence that stays": {"prints-and-stays", nil, KindFailed, []string{"empty line"}},
		"exit":               {"says-and-exits", []string{"3", "no", "devices"}, KindFailed, []string{"exit status 3", `"no devices"`}},
		"exit well":          {"says-and-exits", []string{"0", ""}, KindFailed, []string{"exit status 0"}},
		"old glibc":          {"says-and-exits", []string{"1", glibc}, KindFailed, []string{"GLIBC_2.34"}},
		"missing library":    {"says-and-exits", []string{"127", "x: error while loading shared libraries: libx.so"}, KindFailed, []string{"libx.so"}},
		"version":            {"other-version", nil, KindFailed, []string{"version 2", "version 1"}},
		"core version":       {"prints", []string{"7|1|unix|/x|grpc|"}, KindFailed, []string{"version 7"}},
		"net/rpc":            {"prints", []string{"1|1|unix|/x|netrpc|"}, KindFailed, []string{"gRPC"}},
		"a bad certificate":  {"prints-and-stays", []string{"1|1|unix|/x|grpc|" + strings.Repeat("x", 60)}, KindFailed, []string{"server cert"}},
		"log that is no log": {"says-and-exits", []string{"1", `{"@message": 1}`}, KindFailed, []string{"message"}},
	} {
		t.Run(name, func(t *testing.T) { startOf(t, c.part, c.args...).fails(c.kind, c.words...) })
	}
}

func TestWhatHangsAtTheStartIsKilled(t *testing.T) {
	for part, words := range map[string]string{"silent": "not ready within", "unconnectable": "it printed"} {
		t.Run(part, func(t *testing.T) {
			s := startOf(t, part)
			s.program.StartLimit = 400 * time.Millisecond
			s.fails(KindFailed, words)
			s.fails(KindFailed, words)
		})
	}
}

func TestWhatHangsInAProbeIsKilledWithItsChildren(t *testing.T) {
	s := startOf(t, "hangs-with-child")
	s.program.ProbeLimit = 500 * time.Millisecond
	s.fails(KindFailed, "500ms")
	if pids := marked(s.mark); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
	s.fails(KindFailed, "did not answer")
}

func TestAFailedAnswerIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		part  string
		args  []string
		kind  Kind
		words []string
	}{
		"refusal":      {"refuses", nil, KindRefused, []string{"no driver is loaded"}},
		"panic":        {"panics", nil, KindFailed, []string{"panic: the prober is broken"}},
		"death":        {"exits", nil, KindFailed, []string{"exit status 2", "SIGABRT: abort"}},
		"no tls":       {"without-tls", nil, KindFailed, []string{"TLS handshake"}},
		"no json":      {"answers", []string{"gpus: none"}, KindFailed, []string{`"gpus: none"`}},
		"nothing":      {"answers", []string{""}, KindFailed, []string{"not a JSON object"}},
		"broken json":  {"answers", []string{`{"gpus": [}`}, KindFailed, []string{"invalid character"}},
		"no list":      {"answers", []string{"{}"}, KindFailed, []string{"no list"}},
		"too long":     {"answers-much", []string{"x", "17000000"}, KindFailed, []string{"16 MiB"}},
		"other fields": {"answers", []string{`{"gpus": "none"}`}, KindFailed, []string{"gpus"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOf(t, c.part, c.args...)
			s.fails(c.kind, c.words...)
			s.fails(c.kind, c.words...)
		})
	}
}

func TestAPluginThatPrintsGoesOn(t *testing.T) {
	for _, part := range []string{"prints-much", "logs-badly"} {
		t.Run(part, func(t *testing.T) { startOf(t, part).works() })
	}
}

func TestACallerMayLeaveAndTheHangIsNoticed(t *testing.T) {
	s := startOf(t, "hangs")
	s.program.ProbeLimit = 500 * time.Millisecond
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error)
	go func() { _, err := s.Probe(ctx); left <- err }()
	eventually(t, "the plugin is asked", s.isCalled)
	cancel(gone)
	if err := <-left; err != gone {
		t.Errorf("error %v", err)
	}
	eventually(t, "the plugin is killed", func() bool { return len(marked(s.mark)) == 0 })
}

// isCalled reports whether the plugin runs and a call is under way.
func (s *stage) isCalled() bool {
	return len(s.turn) > 0 && len(marked(s.mark)) > 0
}

func TestCloseEndsAProbe(t *testing.T) {
	for _, part := range []string{"hangs", "silent"} {
		t.Run(part, func(t *testing.T) {
			s := startOf(t, part)
			ended := make(chan error, 3)
			for range 3 {
				go func() { _, err := s.Probe(context.Background()); ended <- err }()
			}
			eventually(t, "it is under way", s.isCalled)
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				if err := <-ended; !strings.Contains(err.Error(), "closed") {
					t.Errorf("error %v", err)
				}
			}
			s.fails(KindClosed)
		})
	}
}

func TestACloseAtAnyTimeLeavesNothing(t *testing.T) {
	for i := range 6 {
		s := startOf(t, "good")
		ended := make(chan error)
		go func() { _, err := s.Probe(context.Background()); ended <- err }()
		timer := time.NewTimer(time.Duration(i) * 16 * time.Millisecond)
		<-timer.C
		s.leavesNothing()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	}
}

func TestAFolderForSocketsIsNotTooLong(t *testing.T) {
	s := startOf(t, "good")
	s.program.SocketDir = "/" + strings.Repeat("x", maxSocketDir)
	s.fails(KindFailed, "longer")
}

func TestThePluginDiesWithItsHost(t *testing.T) {
	self, _ := os.Executable()
	mark := "MUSTER_TEST_MARK=" + rand.Text()
	process, stdout := hostProcess(t, self, mark)
	words, err := io.ReadAll(io.LimitReader(stdout, 3))
	if err != nil || len(words) == 0 {
		t.Fatal(words, err)
	}
	if pids := marked(mark); len(pids) != 1 {
		t.Errorf("the plugin is %v", pids)
	}
	process.Kill()
	process.Wait()
	eventually(t, "all is gone", func() bool { return len(marked(mark)) == 0 })
}

func hostProcess(t *testing.T, self, mark string) (*os.Process, *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	t.Cleanup(func() { read.Close() })
	env := append(os.Environ(), "TMPDIR="+t.TempDir())
	process, err := os.StartProcess(self, []string{self, "play", "host", mark}, &os.ProcAttr{Env: env, Files: []*os.File{nil, write, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	return process, read
}

func TestSamplesComeFromTheProcessThatIsKept(t *testing.T) {
	s := startOf(t, "samples")
	pid := s.works().Notes[0]
	for want := range uint64(3) {
		got, err := s.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if *got.GPUs[0].Memory.Used != want+1 || got.Source != "test" || got.GPUs[0].Why["utilization.gpu"] == "" {
			t.Errorf("sample %d is %+v", want, got)
		}
	}
	if again := s.works().Notes[0]; again != pid {
		t.Errorf("the process was %s and is %s", pid, again)
	}
}

func TestAPluginWithoutSamplesSaysSo(t *testing.T) {
	s := startOf(t, "good")
	_, err := s.Sample(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindUnsupported || !strings.Contains(err.Error(), "does not implement Sample") {
		t.Errorf("error %v", err)
	}
	s.works()
}
