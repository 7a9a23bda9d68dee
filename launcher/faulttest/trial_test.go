//go:build linux

package faulttest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// arrival bounds the wait for a moment in a run's life.
const arrival = 40 * time.Second

// trial is a run of a scenario.
type trial struct {
	t     *testing.T
	s     scenario
	bed   *testbed.Bed
	dir   string // the user's folder and home; hosts see it at the same path
	began time.Time
	muster,
	talker string
	launch  *launch
	faults  []*applied
	undoing sync.WaitGroup
	asked   bool      // the user has asked for the end
	stops   []*launch // commands that ask for it
	left    bool      // the launcher that has started the run has left it; launch has come back

	mu    sync.Mutex
	notes []string
}

// applied is a fault that did hit something.
type applied struct {
	fault
	at        time.Time
	committed bool // the run was, then
	over      bool // the run was, then
	target    *testbed.Process
}

// launch is a muster command on its way.
type launch struct {
	command        *exec.Cmd
	stdout, stderr capture
	ended          chan struct{}
	endedAt        time.Time
}

// capture takes in a stream while others look at it.
type capture struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// note keeps a line of the timeline.
func (r *trial) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf("%7.3f s  ", time.Since(r.began).Seconds())+fmt.Sprintf(format, args...))
}

// prepare writes what the run needs.
func (r *trial) prepare() {
	r.t.Helper()
	var err error
	r.muster, r.talker = programs(r.t)
	if r.dir, err = os.MkdirTemp(r.bed.Shared, fmt.Sprintf("seed-%d-", r.s.seed)); err != nil {
		r.t.Fatal(err)
	}
	for _, name := range []string{"id_ed25519", "known_hosts", "config"} {
		text, err := os.ReadFile(filepath.Join(r.bed.ClientHome, ".ssh", name))
		if err != nil {
			r.t.Fatal(err)
		}
		if name == "config" {
			text = append(text, "\nHost *\n  ServerAliveInterval 1\n  ServerAliveCountMax 3\n  ConnectTimeout 3\n"...)
		}
		r.write(".ssh/"+name, strings.ReplaceAll(string(text), r.bed.ClientHome, r.dir))
	}
	r.write("control", string(make([]byte, 8)))
	r.write("job.hcl", r.job())
	if r.s.bare {
		for _, h := range r.bed.Hosts {
			if err := os.RemoveAll(filepath.Join(h.Home, ".cache", "muster")); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// name is the job's: runs of one bed are told apart by it.
func (r *trial) name() string {
	if r.isSweep() {
		return fmt.Sprintf("sweep%d", r.s.seed)
	}
	return fmt.Sprintf("fault%d", r.s.seed)
}

func (r *trial) job() string {
	if r.isSweep() {
		return r.sweep()
	}
	return fmt.Sprintf(`job %q {
  command = [%q, %q, "%d", "%d", %q, %q]
  lease   = %q
  setup   = "touch %s/setup-$(hostname); sleep %.3f"
  hosts "ssh" {
    names = ["node[1-3]"]
  }
  ranks {
    per_host = %d
  }
  stop {
    grace = %q
  }
  logs {
    show = "0,3"
  }
}
`, r.name(), r.talker, r.dir, r.s.seed, r.s.pause, r.s.term, r.s.daemon, lease, r.dir, r.s.setup.Seconds(), perHost, r.s.grace)
}

func (r *trial) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// start starts a muster command; it is killed when the test ends, if it still runs then.
func (r *trial) start(args ...string) *launch {
	r.t.Helper()
	l := &launch{ended: make(chan struct{})}
	l.command = exec.Command(r.muster, args...)
	l.command.Env = append(r.bed.ClientEnv(), "HOME="+r.dir)
	l.command.Dir = r.dir
	l.command.Stdout, l.command.Stderr = &l.stdout, &l.stderr
	l.command.WaitDelay = 5 * time.Second
	l.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.command.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		_ = l.command.Wait() // how it ended is in ProcessState
		l.endedAt = time.Now()
	}()
	r.t.Cleanup(func() {
		l.signal(syscall.SIGKILL)
		<-l.ended
	})
	return l
}

// signal signals a command that has not been waited for.
func (l *launch) signal(s syscall.Signal) {
	if !l.hasEnded() {
		_ = l.command.Process.Signal(s) // it may have ended just now
	}
}

func (l *launch) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// status is the exit status, or -1 times the number of the signal that ended it.
func (l *launch) status() int {
	status := l.command.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// waits polls until ok or for so long, and reports whether it came to be.
func waits(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			return ok()
		}
	}
	return true
}

// strike goes through the run's life and lets things happen to it.
func (r *trial) strike() {
	r.began = time.Now()
	r.launch = r.start("run", "job.hcl")
	for i, f := range r.s.faults {
		if i == 0 && !r.arrives(f) {
			r.note("the moment for %v has not come", f)
			return
		}
		r.pause(f.wait)
		r.apply(f)
	}
	if len(r.s.faults) == 0 && r.arrives(fault{when: running}) {
		r.pause(500 * time.Millisecond)
	}
}

func (r *trial) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// arrives waits for the moment of a fault.
func (r *trial) arrives(f fault) bool {
	come := map[moment]func() bool{
		connecting: func() bool { return true },
		settingUp:  func() bool { return r.exists("setup-" + hosts[f.host]) },
		starting:   func() bool { return r.happened("committed") },
		running:    r.allTalk,
		stopping:   r.allTalk,
	}[f.when]
	waits(arrival, func() bool { return come() || r.launch.hasEnded() })
	if !come() {
		return false
	}
	if f.when == stopping {
		r.ask("Ctrl-C")
		waits(arrival, func() bool { return r.happened("stopping") || r.launch.hasEnded() })
	}
	r.note("it is %s", f.when)
	return true
}

// ask has the user end the run.
func (r *trial) ask(how string) {
	r.note("the user asks for the end: %s", how)
	r.asked = true
	r.launch.signal(syscall.SIGINT)
}

func (r *trial) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(r.dir, name))
	return err == nil
}

func (r *trial) allTalk() bool {
	if r.isSweep() {
		return len(r.begun()) >= len(hosts)*perHost
	}
	for rank := range len(hosts) * perHost {
		if c, ok := r.record(rank, 0); !ok || c.lines[0]+c.lines[1] == 0 {
			return false
		}
	}
	return true
}

// happened reports whether the coordinator has written down an event of a kind.
func (r *trial) happened(kind string) bool {
	for _, path := range r.files(0, "events.jsonl") {
		text, _ := os.ReadFile(path)
		if bytes.Contains(text, []byte(`"kind":"`+kind+`"`)) {
			return true
		}
	}
	return false
}

// files are the run's files of a name on a host.
func (r *trial) files(host int, name string) []string {
	found, _ := filepath.Glob(filepath.Join(r.bed.Hosts[host].Home, ".local/state/muster/runs", r.name()+"-*", "*", name))
	return found
}
