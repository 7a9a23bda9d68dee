//go:build linux

package endtoend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limits prints what a login would give to a process.
const limits = `umask; ulimit -a; nice; cat /proc/self/oom_score_adj
grep -E '^(Cpus|Mems)_allowed_list|^NoNewPrivs|^Uid|^Gid|^Groups|^Cap|^Seccomp:' /proc/self/status`

func TestAWorkerGetsWhatALoginWouldGiveIt(t *testing.T) {
	bed := threeHosts(t)
	for _, hosts := range [][]string{nil, three[:2]} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			if hosts == nil {
				u.sittingAt("host-z")
			}
			u.runJob(job{script: "exec >" + u.path("limits-$RANK") + "\n" + limits, hosts: hosts, perHost: 2}).exits(0)
			login := ""
			if hosts == nil {
				login = on(t, u.at, "sh", "-c", limits)
			} else {
				login = openSSH(t, bed, bed.Host("host-z"), "sh "+u.file("login.sh", limits))
			}
			for rank := range 2 * max(1, len(hosts)) {
				if got := u.read(fmt.Sprintf("limits-%d", rank)); got != login {
					t.Errorf("rank %d runs under\n%s, a login under\n%s", rank, got, login)
				}
			}
		})
	}
}

// linesOf are what a rank has printed to standard output.
func (r result) linesOf(host string, rank int) (lines []string) {
	prefix := fmt.Sprintf("%s:%d| ", host, rank)
	for line := range strings.Lines(r.stdout) {
		if text, ok := strings.CutPrefix(line, prefix); ok {
			lines = append(lines, strings.TrimSuffix(text, "\n"))
		}
	}
	return lines
}

func TestAWorkerInheritsNoDescriptorsAndReadsFromDevNull(t *testing.T) {
	bed := threeHosts(t)
	for host, hosts := range map[string][]string{"localhost": nil, "host-a": {"host-a"}} {
		t.Run(where(hosts), func(t *testing.T) {
			u := newUser(t, bed)
			if hosts == nil {
				u.sittingAt("host-z")
			}
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			defer write.Close()
			u.open = slices.Repeat([]*os.File{write}, 9) // 3 to 11: a shell that holds a lock would have one open
			// No shell in between: shells keep descriptors of their own.
			r := u.runJob(job{command: []string{"ls", "-l", "/proc/self/fd"}, hosts: hosts, perHost: 2}).exits(0)
			for rank := range 2 {
				lines := r.linesOf(host, rank)
				if len(lines) < 4 {
					t.Fatalf("rank %d has said %q", rank, lines)
				}
				for _, line := range lines[1:] {
					link := line[strings.LastIndex(line[:strings.Index(line, " -> ")], " ")+1:]
					expected := link == "0 -> /dev/null" || strings.HasPrefix(link, "1 -> pipe:") || strings.HasPrefix(link, "2 -> pipe:") ||
						strings.HasSuffix(link, "/fd") // the folder that is being listed
					if !expected {
						t.Errorf("rank %d has %s", rank, link)
					}
				}
			}
		})
	}
}

func TestALocalRunHoldsNothingOfTheShellThatStartedIt(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed).sittingAt("host-z")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	u.open = slices.Repeat([]*os.File{write}, 9)
	path := u.write(job{script: fmt.Sprintf("touch %[1]s/began; while [ ! -e %[1]s/end ]; do sleep 0.02; done", u.dir)})
	l := u.start("run", path)
	write.Close()
	u.waitFor("began")
	l.signal(syscall.SIGKILL) // the run goes on
	<-l.ended
	if err := read.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("something of the run holds a pipe that was the shell's: %v", err)
	}
	if left, err := u.at.Leftovers(); err != nil || len(left) == 0 {
		t.Errorf("the run is over already: %v", err)
	}
	u.file("end", "")
}

func TestAWorkerLeadsAGroupOfItsOwnAndBeginsWithoutIgnoredOrBlockedSignals(t *testing.T) {
	for _, c := range []struct {
		name, host string
		at         string
		hosts      []string
		deaf       bool
	}{
		{name: "local", at: "host-z", host: "localhost"},
		{name: "local, from a shell that ignores signals", at: "host-z", host: "localhost", deaf: true},
		{name: "ssh", hosts: []string{"host-a"}, host: "host-a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t, threeHosts(t))
			if u.deaf = c.deaf; c.at != "" {
				u.sittingAt(c.at)
			}
			r := u.runJob(job{command: []string{"cat", "/proc/self/stat", "/proc/self/status"}, hosts: c.hosts, perHost: 2}).exits(0)
			for rank := range 2 {
				checkGroupAndSignals(t, r.linesOf(c.host, rank))
			}
		})
	}
}

func checkGroupAndSignals(t *testing.T, lines []string) {
	t.Helper()
	if len(lines) < 2 {
		t.Fatalf("the worker has said %q", lines)
	}
	// proc_pid_stat(5): pid (comm) state ppid pgrp session tty_nr
	stat := strings.Fields(lines[0])
	if stat[0] != stat[4] || stat[6] != "0" {
		t.Errorf("the worker is process %s in group %s with terminal %s", stat[0], stat[4], stat[6])
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		if !slices.Contains([]string{"SigIgn", "SigBlk", "SigPnd", "ShdPnd"}, name) {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil || mask&^ofTheLibrary != 0 {
			t.Errorf("the worker begins with %s", line)
		}
	}
}

// ofTheLibrary are signals 32 and 33, which the C library keeps for itself (nptl(7)). What
// started the tests may have them ignored, and no program can change that.
const ofTheLibrary = 1<<31 | 1<<32

func TestAWorkerMayCloseItsOutputAndGoOn(t *testing.T) {
	u := newUser(t, threeHosts(t)).sittingAt("host-a")
	l := u.start("run", u.write(job{script: fmt.Sprintf("cd %s; echo bye; exec >&- 2>&-; touch closed; while [ ! -e end ]; do sleep 0.02; done; touch done", u.dir)}))
	u.waitFor("closed")
	u.file("end", "")
	r := l.wait().exits(0)
	if !u.exists("done") || !strings.Contains(r.stdout, "bye") {
		t.Errorf("the worker has not got to its end; it said %q", r.stdout)
	}
}

func TestMusterReadsNothingOfItsStandardInput(t *testing.T) {
	u := newUser(t, threeHosts(t))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if _, err := write.WriteString("next job\n"); err != nil {
		t.Fatal(err)
	}
	write.Close()
	u.input = read // as in: while read job; do muster run $job; done
	u.runJob(job{script: "cat", hosts: []string{"host-z"}}).exits(0)
	u.sittingAt("host-z").runJob(job{script: "cat"}).exits(0)
	if rest, err := io.ReadAll(read); err != nil || string(rest) != "next job\n" {
		t.Errorf("of standard input %q is left: %v", rest, err)
	}
}

func TestAWorkerBeginsInTheWorkFolderOfItsHost(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	for _, h := range bed.Hosts {
		on(t, h, "mkdir", "-p", "/root/work/deep", "/var/tmp/elsewhere")
	}
	u.file("run.sh", "")
	script := fmt.Sprintf("pwd >%[1]s/pwd-$RANK; echo $PWD >>%[1]s/pwd-$RANK", u.dir)
	for _, h := range bed.Hosts {
		on(t, h, "sh", "-c", "printf '#!/bin/sh\n"+script+"\n' >/root/work/run; chmod +x /root/work/run; cp -p /root/work/run /var/tmp/elsewhere/run")
	}
	u.runJob(job{command: []string{"./run"}, hosts: three, more: "workdir = \"~/work\"",
		blocks: "host \"host-a\" {\n workdir = \"/var/tmp/elsewhere\"\n}"}).exits(0)
	for rank, want := range []string{"/root/work", "/var/tmp/elsewhere", "/root/work"} {
		if got := u.read(fmt.Sprintf("pwd-%d", rank)); got != want+"\n"+want+"\n" {
			t.Errorf("rank %d says %q, want %s twice", rank, got, want)
		}
	}
}

func TestHostsMayDifferInUserPortSetupEnvAndRanks(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	// In ssh_config there is another user and a port where nobody listens.
	u.ssh("odd", "HostName "+bed.Host("host-m").Addr.String(), "User nobody-here", "Port 9")
	u.runJob(job{
		script: fmt.Sprintf(`echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $(hostname) $(id -un) $A $B" >%s/rank-$RANK`, u.dir),
		hosts:  []string{"host-z", "odd"},
		blocks: "host \"odd\" {\n user = \"root\"\n port = 22\n setup = \"export A=odd-setup\"\n env = { B = \"odd-env\" }\n ranks {\n per_host = 3\n }\n}",
		more:   "env = { B = \"env\" }" + setup("export A=setup"),
	}).exits(0)
	for rank, want := range []string{
		"0 0 1 4 host-z root setup env\n", "1 0 3 4 host-m root odd-setup odd-env\n",
		"2 1 3 4 host-m root odd-setup odd-env\n", "3 2 3 4 host-m root odd-setup odd-env\n",
	} {
		if got := u.read(fmt.Sprintf("rank-%d", rank)); got != want {
			t.Errorf("rank %d says %q, want %q", rank, got, want)
		}
	}
}
