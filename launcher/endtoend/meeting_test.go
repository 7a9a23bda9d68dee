//go:build linux

package endtoend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/testbed"
)

// sayWhere leaves where a rank is and where it is to meet the others.
const sayWhere = `echo "$RANK $LOCAL_RANK $(hostname) $MASTER_ADDR" >%s/rank-$RANK` + "\n"

// B16
func TestRanksFollowTheJobFilesOrder(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.runJob(job{script: fmt.Sprintf(sayWhere, u.dir), hosts: three, perHost: 2}).exits(0)
	for rank := range 6 {
		host := three[rank/2]
		want := fmt.Sprintf("%d %d %s %s\n", rank, rank%2, host, bed.Host(three[0]).Addr)
		if got := u.read(fmt.Sprintf("rank-%d", rank)); got != want {
			t.Errorf("rank %d says %q, want %q", rank, got, want)
		}
	}
}

// masterOf is the MASTER_ADDR that all ranks of a run on these hosts have.
func (u *user) masterOf(r result, ranks int) string {
	u.t.Helper()
	master := ""
	for rank := range ranks {
		fields := strings.Fields(u.read(fmt.Sprintf("rank-%d", rank)))
		if len(fields) != 4 || master != "" && fields[3] != master {
			u.t.Fatalf("rank %d says %q, others are to meet at %q; muster said:\n%s", rank, fields, master, r.stderr)
		}
		master = fields[3]
	}
	return master
}

// B29, B30
func TestMasterAddressIsSeenToBeReachableFromEveryHost(t *testing.T) {
	t.Run("by the way SSH came", func(t *testing.T) {
		bed := threeHosts(t)
		u := newUser(t, bed)
		r := u.runJob(job{script: fmt.Sprintf(sayWhere, u.dir), hosts: three}).exits(0)
		master := u.masterOf(r, 3)
		if master != bed.Host("host-z").Addr.String() {
			t.Errorf("MASTER_ADDR is %s, host-z has %s", master, bed.Host("host-z").Addr)
		}
		for _, h := range bed.Hosts {
			if err := reach(h, master); err != nil {
				t.Errorf("%s does not reach MASTER_ADDR: %v", h.Name, err)
			}
		}
		events := newest(t, bed.Host("host-z").Home, "events.jsonl")
		for _, text := range []string{"127.0.1.1 was passed over", "172.17.0.1 was passed over: docker0 is docker's bridge"} {
			if !strings.Contains(events, text) {
				t.Errorf("the run's events do not say %q:\n%s", text, events)
			}
		}
	})
	bed := ownBed(t, testbed.Options{Hosts: 2, Names: []string{"head", "other"}, SecondNet: true})
	head, other := bed.Host("head"), bed.Host("other")
	t.Run("another where one host does not get there", func(t *testing.T) {
		u := newUser(t, bed)
		on(t, other, "ip", "route", "add", "prohibit", head.Addr.String())
		r := u.runJob(job{script: fmt.Sprintf(sayWhere+"echo $GLOO_SOCKET_IFNAME", u.dir), hosts: []string{"head", "other"}}).exits(0)
		if master := u.masterOf(r, 2); master != head.SecondAddr.String() {
			t.Errorf("MASTER_ADDR is %s, other reaches head by %s alone", master, head.SecondAddr)
		}
		for rank, line := range []string{"head:0| eth1\n", "other:1| eth1\n"} {
			if !strings.Contains(r.stdout, line) {
				t.Errorf("rank %d is not told to use the interface that leads there:\n%s", rank, r.stdout)
			}
		}
		if events := newest(t, head.Home, "events.jsonl"); !strings.Contains(events, head.Addr.String()+" was passed over: other does not reach it") {
			t.Errorf("the run's events do not say why %s was passed over:\n%s", head.Addr, events)
		}
	})
	t.Run("none, which is said with all that were tried", func(t *testing.T) {
		u := newUser(t, bed)
		on(t, other, "ip", "route", "add", "prohibit", head.SecondAddr.String())
		u.runJob(job{script: "touch " + u.path("ran"), hosts: []string{"head", "other"}}).exits(69).
			says("other", head.Addr.String(), head.SecondAddr.String())
		if u.exists("ran") {
			t.Error("a worker was started")
		}
	})
}

// reach connects from a host to the sshd at an address.
func reach(h *testbed.Host, addr string) error {
	return h.Do(func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, "22"), patience)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// on runs a command on a host.
func on(t testing.TB, h *testbed.Host, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // cleanups call it too
	defer cancel()
	out, _, err := h.Run(ctx, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// newest reads a file of the run that wrote one of this name last in a home.
func newest(t testing.TB, home, name string) string {
	t.Helper()
	var path string
	var written time.Time
	for _, folder := range runFolders(home) {
		info, err := os.Stat(filepath.Join(folder, name))
		if err == nil && info.ModTime().After(written) {
			path, written = filepath.Join(folder, name), info.ModTime()
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("no run in %s has left %s: %v", home, name, err)
	}
	return string(text)
}

// B43
func TestAnAddressStaysAnAddress(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed).sittingAt("host-m")
	head, other := bed.Host("host-z"), bed.Host("host-a")
	on(t, u.at, "sh", "-c", fmt.Sprintf("echo '%s fake-host' >>/etc/hosts", head.Addr))
	for _, h := range []*testbed.Host{head, other} {
		u.ssh(h.Addr.String(), "Port 22")
	}
	r := u.runJob(job{script: fmt.Sprintf(sayWhere, u.dir), hosts: []string{head.Addr.String(), other.Addr.String()}}).exits(0)
	if master := u.masterOf(r, 2); master != head.Addr.String() {
		t.Errorf("MASTER_ADDR is %s, the job file has %s", master, head.Addr)
	}
	r.says(head.Addr.String()).saysNothingOf("fake-host")
}

// B44
func TestAnSSHAliasIsNeverTheMasterAddress(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	u.ssh("gpuA", "HostName "+bed.Host("host-a").Addr.String())
	u.ssh("gpuB", "HostName "+bed.Host("host-m").Addr.String(), "ProxyJump host-z")
	r := u.runJob(job{script: fmt.Sprintf(sayWhere, u.dir) + "echo here", hosts: []string{"gpuA", "gpuB"}}).exits(0)
	if master := u.masterOf(r, 2); master != bed.Host("host-a").Addr.String() {
		t.Errorf("MASTER_ADDR is %s, gpuA is at %s", master, bed.Host("host-a").Addr)
	}
	for _, line := range []string{"gpuA:0| here", "gpuB:1| here"} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("standard output lacks %q: the alias is what the user knows\n%s", line, r.stdout)
		}
	}
}

// With ProxyJump the address must be one that peers reach, not the jump host's.
func TestHostsBehindAJumpHostMeetAtTheirOwnAddress(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed)
	for _, name := range []string{"host-a", "host-m"} {
		u.ssh("inner-"+name, "HostName "+bed.Host(name).Addr.String(), "ProxyJump host-z")
	}
	r := u.runJob(job{
		script: fmt.Sprintf(sayWhere, u.dir), hosts: []string{"inner-host-m", "inner-host-a"},
		more: setup("echo \"$SSH_CONNECTION\" >" + u.path("came-from-$(hostname)")),
	}).exits(0)
	if master := u.masterOf(r, 2); master != bed.Host("host-m").Addr.String() {
		t.Errorf("MASTER_ADDR is %s, host-m has %s", master, bed.Host("host-m").Addr)
	}
	for _, name := range []string{"host-a", "host-m"} {
		log, err := os.ReadFile(bed.Host(name).Log())
		if err != nil || !strings.Contains(string(log), "Connection from "+bed.Host("host-z").Addr.String()) {
			t.Errorf("the connection to %s did not come through host-z (%v)", name, err)
		}
	}
}

// B46
func TestASingleRemoteHostIsNotThisMachine(t *testing.T) {
	bed := threeHosts(t)
	u := newUser(t, bed).sittingAt("host-z")
	before := len(runFolders(u.at.Home))
	u.runJob(job{script: fmt.Sprintf(sayWhere, u.dir), hosts: []string{"host-a"}}).exits(0)
	if got := u.read("rank-0"); got != "0 0 host-a 127.0.0.1\n" {
		t.Errorf("the rank says %q", got)
	}
	if len(runFolders(u.at.Home)) > before || len(runFolders(u.dir)) > 0 {
		t.Error("the run has left something where it was launched")
	}
}

func TestMasterPortIsHeldForRankZero(t *testing.T) {
	bed := threeHosts(t)
	h := bed.Host("host-z")
	const first, last = 25000, 25003
	script := "cd %s; echo $MASTER_PORT >port-$1-$RANK; touch ready-$1-$RANK; while [ ! -e end ]; do sleep 0.02; done"
	u := newUser(t, bed).sittingAt("host-z")
	var launches []*launch
	for _, name := range []string{"a", "b"} {
		path := u.write(job{name: name, command: []string{"sh", u.file(name+".sh", fmt.Sprintf(script, u.dir)), name},
			perHost: 2, more: fmt.Sprintf("ports = \"%d-%d\"", first, last)})
		launches = append(launches, u.start("run", path))
	}
	u.waitFor("ready-a-0", "ready-a-1", "ready-b-0", "ready-b-1")
	ports := map[string]int{}
	for _, name := range []string{"a", "b"} {
		port, err := strconv.Atoi(strings.TrimSpace(u.read("port-" + name + "-0")))
		if err != nil || port < first || port > last || u.read("port-"+name+"-0") != u.read("port-"+name+"-1") {
			t.Errorf("MASTER_PORT of %s: %d, %v", name, port, err)
		}
		ports[name] = port
	}
	if ports["a"] == ports["b"] {
		t.Errorf("both runs have port %d", ports["a"])
	}
	if err := listenOn(h, ports["a"], false); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("somebody else can take port %d: %v", ports["a"], err)
	}
	// As PyTorch's store does.
	if err := listenOn(h, ports["a"], true); err != nil {
		t.Errorf("rank 0 cannot listen on port %d: %v", ports["a"], err)
	}
	u.file("end", "")
	for _, l := range launches {
		l.wait().exits(0)
	}
}

// listenOn listens on a port of a host for a moment.
func listenOn(h *testbed.Host, port int, reuse bool) error {
	return h.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if reuse {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
				return err
			}
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	})
}
