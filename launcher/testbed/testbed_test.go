//go:build linux

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait in these tests.
const patience = 20 * time.Second

// say runs a shell script on a host and returns what it printed.
func say(t *testing.T, h *Host, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, _, err := h.Run(ctx, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// openSSH runs a command on a host by the real client.
func openSSH(t *testing.T, bed *Bed, h *Host, options []string, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append([]string{"-F", bed.SSHConfig, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"}, options...)
	cmd := exec.CommandContext(ctx, "ssh", append(args, h.Name, command)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// eventually waits until ok, polling.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// dial connects to a host's sshd and waits for its banner.
func dial(addr netip.Addr, timeout time.Duration) error {
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 22).String(), timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	_, err = conn.Read(make([]byte, 1))
	return err
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestHostsShareNothingTheyShouldNot(t *testing.T) {
	bed := New(t, Options{Hosts: 3})
	machine, err := os.ReadFile(bootIDFile)
	if err != nil {
		t.Fatal(err)
	}
	machineID, _ := os.ReadFile("/etc/machine-id")
	own := map[string]string{
		"hostname":        "hostname",
		"boot_id":         "cat " + bootIDFile,
		"machine-id":      "cat /etc/machine-id",
		"/etc/hosts":      "cat /etc/hosts",
		"own address":     "getent hosts $(hostname) >/dev/null; ip -o -4 addr show eth0 | awk '{print $4}'",
		"net namespace":   "readlink /proc/1/ns/net",
		"pid namespace":   "readlink /proc/1/ns/pid",
		"mount namespace": "readlink /proc/1/ns/mnt",
		"ipc namespace":   "readlink /proc/1/ns/ipc",
		"uts namespace":   "readlink /proc/1/ns/uts",
		"rsa key":         "cat /etc/ssh/ssh_host_rsa_key",
		"ecdsa key":       "cat /etc/ssh/ssh_host_ecdsa_key",
		"ed25519 key":     "cat /etc/ssh/ssh_host_ed25519_key",
	}
	for what, script := range own {
		seen := map[string]string{
			strings.TrimSpace(string(machine)):   "the machine",
			strings.TrimSpace(string(machineID)): "the machine",
		}
		for _, h := range bed.Hosts {
			value := say(t, h, script)
			if other := seen[value]; other != "" || value == "" {
				t.Errorf("%s of %s is %q, as on %s", what, h.Name, value, other)
			}
			seen[value] = h.Name
		}
	}
	if got := say(t, bed.Hosts[1], "getent ahostsv4 node2 | head -n1 | cut -d' ' -f1"); got != "127.0.1.1" {
		t.Errorf("a host's name resolves to %s, on Debian it is 127.0.1.1", got)
	}
}

func TestFoldersOfAHostArePrivate(t *testing.T) {
	bed := New(t, Options{Hosts: 2})
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/dev/shm", "/root", "/etc"} {
		path := filepath.Join(dir, "testbed-"+filepath.Base(bed.Dir))
		say(t, bed.Hosts[0], "echo mine > "+path)
		if got := say(t, bed.Hosts[1], "cat "+path+" 2>/dev/null || echo none"); got != "none" {
			t.Errorf("%s of node1 shows on node2", dir)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s of node1 shows on the machine", dir)
		}
	}
}

func TestSharedFolderAndKeptPathsAreTheSameEverywhere(t *testing.T) {
	kept, writable := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(kept, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	bed := New(t, Options{Hosts: 2, Keep: []string{kept}, KeepRW: []string{writable}})
	if got := say(t, bed.Hosts[1], filepath.Join(kept, "tool")); got != "tool" {
		t.Errorf("a kept program said %q", got)
	}
	if got := say(t, bed.Hosts[1], "touch "+kept+"/x 2>/dev/null || echo refused"); got != "refused" {
		t.Errorf("writing to a kept folder: %q, want it refused", got)
	}
	for _, dir := range []string{writable, bed.Shared} {
		say(t, bed.Hosts[0], "echo 1 > "+dir+"/note")
		text, err := os.ReadFile(filepath.Join(dir, "note"))
		if got := say(t, bed.Hosts[1], "cat "+dir+"/note"); got != "1" || err != nil || string(text) != "1\n" {
			t.Errorf("%s: node2 read %q, the machine %q, %v", dir, got, text, err)
		}
	}
}

func TestHomeIsPrivateOrShared(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			bed := New(t, Options{Hosts: 2, SharedHome: shared})
			say(t, bed.Hosts[0], "echo me > ~/note")
			want := map[bool]string{false: "none", true: "me"}[shared]
			if got := say(t, bed.Hosts[1], "cat ~/note 2>/dev/null || echo none"); got != want {
				t.Errorf("node2 reads %q in node1's note, want %q", got, want)
			}
			if text, err := os.ReadFile(filepath.Join(bed.Hosts[0].Home, "note")); string(text) != "me\n" {
				t.Errorf("Home shows %q, %v", text, err)
			}
			for _, h := range bed.Hosts {
				if got, err := openSSH(t, bed, h, nil, "pwd"); got != "/root" {
					t.Errorf("ssh %s pwd: %q, %v", h.Name, got, err)
				}
			}
		})
	}
}

func TestOpenSSHReachesEveryHostWithEveryKindOfHostKey(t *testing.T) {
	bed := New(t, Options{Hosts: 2, Names: []string{"gpu01"}})
	for _, h := range bed.Hosts {
		for _, algorithm := range []string{"rsa-sha2-512", "ecdsa-sha2-nistp256", "ssh-ed25519"} {
			got, err := openSSH(t, bed, h, []string{"-o", "HostKeyAlgorithms=" + algorithm}, "hostname; echo $PATH; echo $HOME")
			if want := h.Name + "\n" + rootPath + "\n/root"; err != nil || got != want {
				t.Errorf("ssh %s: %v, said %q, want %q", h.Name, err, got, want)
			}
		}
	}
}

func TestHostKeysMayBeUnknownToTheClient(t *testing.T) {
	bed := New(t, Options{Hosts: 2, KnownHostKeyTypes: []string{"rsa"}, Each: func(i int, h *HostOptions) {
		if i == 1 {
			h.KnownHostKeyTypes = []string{}
		}
	}})
	known, err := os.ReadFile(filepath.Join(bed.ClientHome, ".ssh", "known_hosts"))
	if err != nil || bytes.Count(known, []byte("\n")) != 1 || !bytes.Contains(known, []byte(" ssh-rsa ")) {
		t.Errorf("known_hosts has %q, %v; want one rsa key", known, err)
	}
	if got, err := openSSH(t, bed, bed.Hosts[0], nil, "hostname"); got != "node1" {
		t.Errorf("ssh node1: %q, %v", got, err)
	}
	if got, err := openSSH(t, bed, bed.Hosts[1], nil, "hostname"); err == nil || !strings.Contains(got, "verification failed") {
		t.Errorf("ssh node2, whose key is not known: %q, %v", got, err)
	}
}

func TestSSHDCanBeConfigured(t *testing.T) {
	bed := New(t, Options{
		SSHDConfig: []string{"AllowStreamLocalForwarding no", "Match User root", "AllowTcpForwarding no"},
		Each:       func(i int, h *HostOptions) { h.Port = 2222 },
	})
	h := bed.Hosts[0]
	if got, err := openSSH(t, bed, h, nil, "echo $SSH_CONNECTION"); !strings.HasSuffix(got, " 2222") {
		t.Errorf("port 2222: %q, %v", got, err)
	}
	config := say(t, h, "/usr/sbin/sshd -T -C user=root,host=x,addr=1.2.3.4")
	for _, want := range []string{"allowstreamlocalforwarding no", "allowtcpforwarding no", "usepam no"} {
		if !strings.Contains(config, want+"\n") {
			t.Errorf("sshd -T lacks %q", want)
		}
	}
}

func TestHostsReachEachOtherAndNothingElse(t *testing.T) {
	bed := New(t, Options{Hosts: 2, SecondNet: true, Docker0: true, PeerNames: true, Each: func(i int, h *HostOptions) {
		h.NIC, h.SecondNIC = fmt.Sprintf("ens%d", i), "ib0"
	}})
	a, b := bed.Hosts[0], bed.Hosts[1]
	for _, to := range []netip.Addr{b.Addr, b.SecondAddr} {
		if err := a.Do(func() error { return dial(to, patience) }); err != nil {
			t.Errorf("node1 to %s: %v", to, err)
		}
	}
	if err := dial(b.SecondAddr, time.Second); err == nil {
		t.Error("the machine reaches the second network")
	}
	start := time.Now()
	if err := a.Do(func() error { return dial(netip.MustParseAddr("192.0.2.77"), patience) }); err == nil || isTimeout(err) {
		t.Errorf("node1 to the world: %v after %v, want an error at once", err, time.Since(start))
	}
	if got := say(t, a, "getent ahostsv4 node2 | head -n1 | cut -d' ' -f1"); got != b.Addr.String() {
		t.Errorf("node2 resolves to %q on node1", got)
	}
	for _, h := range bed.Hosts {
		names := say(t, h, "ls -x /sys/class/net")
		for _, nic := range []string{h.NIC(), "ib0", "docker0"} {
			if !strings.Contains(names, nic) {
				t.Errorf("%s has the interfaces %s, not %s", h.Name, names, nic)
			}
		}
		if got := say(t, h, "ip -br addr show docker0"); !strings.Contains(got, "UP") || !strings.Contains(got, "172.17.0.1/16") {
			t.Errorf("docker0 on %s: %s", h.Name, got)
		}
	}
}

func TestCutTakesTheCarrierAndHealGivesItBack(t *testing.T) {
	bed := New(t, Options{Hosts: 2})
	a, b := bed.Hosts[0], bed.Hosts[1]
	if err := a.Cut(); err != nil {
		t.Fatal(err)
	}
	if got := say(t, a, "cat /sys/class/net/eth0/carrier"); got != "0" {
		t.Errorf("carrier of a cut host is %q", got)
	}
	if err := dial(a.Addr, 300*time.Millisecond); err == nil {
		t.Error("a cut host answers")
	}
	if err := dial(b.Addr, patience); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	heal(t, a)
}

func TestCutSilentlyLeavesTheCarrier(t *testing.T) {
	bed := New(t, Options{Hosts: 2})
	a, b := bed.Hosts[0], bed.Hosts[1]
	if err := dial(a.Addr, patience); err != nil {
		t.Fatal(err)
	}
	if err := a.CutSilently(); err != nil {
		t.Fatal(err)
	}
	if err := dial(a.Addr, 300*time.Millisecond); !isTimeout(err) {
		t.Errorf("dialling a silent host: %v, want a timeout", err)
	}
	if err := b.Do(func() error { return dial(a.Addr, 300*time.Millisecond) }); !isTimeout(err) {
		t.Errorf("dialling it from its neighbour: %v, want a timeout", err)
	}
	if got := say(t, a, "cat /sys/class/net/eth0/carrier"); got != "1" {
		t.Errorf("its carrier is %q", got)
	}
	if err := dial(b.Addr, patience); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	heal(t, a)
}

func heal(t *testing.T, h *Host) {
	t.Helper()
	if err := h.Heal(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the healed host answers", func() bool { return dial(h.Addr, 200*time.Millisecond) == nil })
}

func TestLossOfEverythingIsSilence(t *testing.T) {
	h := New(t, Options{}).Hosts[0]
	if err := h.SetLoss(100); err != nil {
		t.Fatal(err)
	}
	if err := dial(h.Addr, 300*time.Millisecond); !isTimeout(err) {
		t.Errorf("with all frames lost: %v, want a timeout", err)
	}
	if err := h.SetLoss(0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host answers", func() bool { return dial(h.Addr, 200*time.Millisecond) == nil })
}

func TestRateLimitsBothWays(t *testing.T) {
	bed := New(t, Options{})
	h := bed.Hosts[0]
	const size, rate = 3 << 20, 2 << 20
	if err := h.SetRate(rate); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		fmt.Sprintf("head -c %d /dev/zero", size),
		"cat >/dev/null",
	} {
		took := transfer(t, bed, command, size)
		if took < time.Second {
			t.Errorf("%d bytes at %d bytes/s by %q took %v", size, rate, command, took)
		}
	}
	if err := h.SetRate(0); err != nil {
		t.Fatal(err)
	}
	if got := say(t, h, "tc qdisc show dev eth0"); strings.Contains(got, "tbf") {
		t.Errorf("after the limit was lifted: %s", got)
	}
}

// transfer moves bytes through ssh and says how long that took.
func transfer(t *testing.T, bed *Bed, command string, size int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-F", bed.SSHConfig, "-o", "BatchMode=yes", bed.Hosts[0].Name, command)
	cmd.Stdin = bytes.NewReader(make([]byte, size))
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func TestRunReportsOutputAndStatusAndObeysItsContext(t *testing.T) {
	h := New(t, Options{}).Hosts[0]
	out, errs, err := h.Run(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 3")
	var exit *exec.ExitError
	if string(out) != "out\n" || string(errs) != "err\n" || !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %q, %q, %v", out, errs, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, _, err := h.Run(ctx, "sh", "-c", "sleep 1000 & sleep 1000"); err == nil || time.Since(start) > patience {
		t.Errorf("a command past its context: %v after %v", err, time.Since(start))
	}
	noLeftovers(t, h)
}

func noLeftovers(t *testing.T, h *Host) {
	t.Helper()
	var rest []Process
	eventually(t, "nothing is left on the host", func() bool {
		rest, _ = h.Leftovers()
		return len(rest) == 0
	})
}

func TestProcessesHaveTheirNumbersOnHostAndMachine(t *testing.T) {
	bed := New(t, Options{})
	h := bed.Hosts[0]
	pid := say(t, h, "sleep 4711 >/dev/null 2>&1 & echo $!")
	inside, _ := strconv.Atoi(pid)
	left, err := h.Leftovers()
	if err != nil || len(left) != 1 || left[0].PID != inside || strings.Join(left[0].Args, " ") != "sleep 4711" {
		t.Fatalf("left: %v, %v; want sleep 4711 as %d", left, err, inside)
	}
	if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", left[0].MachinePID)); string(comm) != "sleep\n" {
		t.Errorf("on the machine %d is %q", left[0].MachinePID, comm)
	}
	all, err := h.Processes()
	if err != nil || len(all) != 3 || all[0].PID != 1 {
		t.Errorf("all processes: %v, %v; want init, sshd and sleep", all, err)
	}
	if err := h.Kill(inside, 9); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, h) // its parent is gone: init has reaped it
	if err := h.Kill(inside, 9); err == nil {
		t.Error("killing it again is no error")
	}
}

func TestStopKillsEverythingAndStartIsANewBoot(t *testing.T) {
	bed := New(t, Options{Hosts: 2, Docker0: true})
	h := bed.Hosts[0]
	say(t, h, "setsid sleep 4712 >/dev/null 2>&1 & echo home > ~/note; echo tmp > /tmp/note; echo vt > /var/tmp/note")
	before, _ := h.Processes()
	boot, id := h.BootID(), say(t, h, "cat /etc/machine-id")
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range before {
		if now, err := readProcess(p.MachinePID); err == nil && now.Name == p.Name && now.PID == p.PID {
			t.Errorf("%v survived the power-off", p)
		}
	}
	if err := dial(h.Addr, 300*time.Millisecond); err == nil {
		t.Error("a host that is off answers")
	}
	if err := h.CutSilently(); err != nil { // to be in force from the start
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(h.Addr, 300*time.Millisecond); err == nil {
		t.Error("a host that was cut while it was off answers")
	}
	heal(t, h)
	if now := say(t, h, "cat "+bootIDFile); now == boot || now != h.BootID() {
		t.Errorf("boot_id %s, BootID %s, before %s", now, h.BootID(), boot)
	}
	got := say(t, h, "cat ~/note /var/tmp/note /etc/machine-id; ls /tmp/note 2>/dev/null; hostname")
	if want := "home\nvt\n" + id + "\nnode1"; got != want {
		t.Errorf("after the boot: %q, want %q", got, want)
	}
	if got, err := openSSH(t, bed, h, nil, "hostname"); got != "node1" {
		t.Errorf("ssh after the boot: %q, %v", got, err)
	}
}

func TestClocksCanDiffer(t *testing.T) {
	const offset = 30 * 24 * time.Hour
	bed := New(t, Options{Hosts: 2, Each: func(i int, h *HostOptions) {
		if i == 1 {
			h.ClockOffset = offset
		}
	}})
	const script = "cut -d' ' -f1 /proc/uptime"
	base, _ := strconv.ParseFloat(say(t, bed.Hosts[0], script), 64)
	byRun := say(t, bed.Hosts[1], script)
	bySSH, err := openSSH(t, bed, bed.Hosts[1], nil, script)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{byRun, bySSH} {
		up, _ := strconv.ParseFloat(text, 64)
		if d := up - base - offset.Seconds(); d < 0 || d > patience.Seconds() {
			t.Errorf("up for %s, the other host for %.0f s; want 30 days more", text, base)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"relative path":  {Keep: []string{"x"}},
		"missing path":   {Keep: []string{"/no/such/folder"}},
		"same name":      {Hosts: 2, Names: []string{"a", "a"}},
		"too many names": {Hosts: 1, Names: []string{"a", "b"}},
		"too many hosts": {Hosts: maxHosts + 1},
		"bad sshd line":  {SSHDConfig: []string{"NoSuchKeyword yes"}},
	} {
		bed, err := Start(t.Context(), o)
		if errors.Is(err, ErrNotRoot) {
			t.Skip(err)
		}
		if err == nil {
			bed.Close()
			t.Errorf("%s: no error", name)
		}
		t.Logf("%s: %v", name, err)
	}
}

func TestClientEnvLeadsToTheBedOnly(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/somewhere/agent")
	t.Setenv("XDG_STATE_HOME", "/somewhere/state")
	bed := New(t, Options{})
	env := "\n" + strings.Join(bed.ClientEnv(), "\n") + "\n"
	if !strings.Contains(env, "\nHOME="+bed.ClientHome+"\n") || strings.Contains(env, "/somewhere/") {
		t.Errorf("environment of the client: %s", env)
	}
}
