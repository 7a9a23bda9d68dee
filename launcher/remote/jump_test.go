package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// farm is a bastion and a host behind it, under names of the configuration.
func farm(t testing.TB, bastionOptions ...string) (bastion, inner *server, c *client) {
	t.Helper()
	c = newClient(t)
	bastion = newServer(t, []ssh.PublicKey{c.key}, bastionOptions...)
	inner = newServer(t, []ssh.PublicKey{c.key})
	c.knows(t, bastion, "ecdsa")
	c.knows(t, inner, "rsa")
	c.config(t, farmConfig(bastion, inner))
	return bastion, inner, c
}

func farmConfig(bastion, inner *server) string {
	return fmt.Sprintf(`
Host bastion
  HostName 127.0.0.1
  Port %d
Host gpu*
  HostName 127.0.0.1
  Port %d
  ProxyJump bastion
`, bastion.port, inner.port)
}

func TestProxyJump(t *testing.T) {
	bastion, inner, c := farm(t)
	d := c.dialer()
	hosts, errs := connectAll(bounded(t), d, []Target{{Name: "gpu01"}, {Name: "gpu02"}, {Name: "gpu03"}})
	must(t, errors.Join(errs...))
	p := begin(t, hosts[2], agentLaunch("pwd"))
	if text := output(t, p); text != "/root\n" {
		t.Fatalf("output %q", text)
	}
	for _, h := range hosts {
		must(t, h.Close())
	}
	logins := func(s *server) int { return strings.Count(s.log.String(), "Accepted publickey") }
	if logins(bastion) != 1 || logins(inner) != 3 {
		t.Fatalf("logins: bastion %d, host %d", logins(bastion), logins(inner))
	}
	if len(d.hops.open) != 0 {
		t.Fatal("the bastion's connection is left open")
	}
}

func TestChainOfJumps(t *testing.T) {
	bastion, inner, c := farm(t)
	last := newServer(t, []ssh.PublicKey{c.key})
	c.knows(t, last, "ed25519")
	c.config(t, fmt.Sprintf("Host last\nHostName 127.0.0.1\nPort %d\nProxyJump bastion,root@127.0.0.1:%d\n", last.port, inner.port)+farmConfig(bastion, inner))
	connect(t, c.dialer(), Target{Name: "last"})
	c.config(t, fmt.Sprintf("Host last\nHostName 127.0.0.1\nPort %d\nProxyJump gpu01\n", last.port)+farmConfig(bastion, inner))
	connect(t, c.dialer(), Target{Name: "last"})
	if n := strings.Count(bastion.log.String(), "Accepted publickey"); n != 2 {
		t.Fatalf("the bastion saw %d logins", n)
	}
}

func TestProxyJumpNone(t *testing.T) {
	bastion, inner, c := farm(t)
	c.config(t, "Host gpu01\nProxyJump none\n"+farmConfig(bastion, inner))
	connect(t, c.dialer(), Target{Name: "gpu01"})
	if strings.Contains(bastion.log.String(), "Accepted") {
		t.Fatal("went through the bastion")
	}
}

func TestJumpHostKeyIsVerified(t *testing.T) {
	bastion, _, c := farm(t)
	write(t, c.path("known_hosts"), "")
	failed := connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindUnknownKey, "jump host bastion", fmt.Sprint(bastion.port))
	if failed.Host != "gpu01" || failed.Hop != "bastion" {
		t.Fatalf("host %q, hop %q", failed.Host, failed.Hop)
	}
	// Asked for both, each under its own name.
	user := &answers{yes: true}
	d := c.dialer()
	d.Prompter = user
	hosts, errs := connectAll(bounded(t), d, []Target{{Name: "gpu01"}, {Name: "gpu02"}})
	must(t, errors.Join(errs...))
	for _, h := range hosts {
		must(t, h.Close())
	}
	if len(user.asked) != 2 || !strings.Contains(user.asked[0], "bastion") || !strings.Contains(user.asked[1], "gpu0") {
		t.Fatalf("asked %q", user.asked)
	}
	connect(t, c.dialer(), Target{Name: "gpu03"})
}

func TestHostKeyBehindAJumpHost(t *testing.T) {
	bastion, _, c := farm(t)
	write(t, c.path("known_hosts"), "")
	c.knows(t, bastion, "rsa")
	failed := connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindUnknownKey, "ssh -o StrictHostKeyChecking=ask")
	if failed.Hop != "" {
		t.Fatalf("hop %q", failed.Hop)
	}
}

func TestJumpHostFails(t *testing.T) {
	_, inner, c := farm(t)
	dead := freePort(t)
	c.config(t, farmConfig(&server{port: dead}, inner))
	connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindRefused, "connect to gpu01: jump host bastion: nothing listens at")
	c.config(t, "Host a\nProxyJump b\nHost b\nProxyJump a\n")
	connectFails(t, c.dialer(), Target{Name: "a"}, KindConfig, "do they name each other")
}

func TestBehindTheJumpHost(t *testing.T) {
	bastion, _, c := farm(t)
	c.config(t, farmConfig(bastion, &server{port: freePort(t)}))
	connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindRefused, "jump host bastion: cannot reach 127.0.0.1")
	c.config(t, farmConfig(bastion, &server{port: 22})+"Host nowhere\nHostName nowhere.invalid\nProxyJump bastion\n")
	connectFails(t, c.dialer(), Target{Name: "nowhere"}, KindResolve, "jump host bastion", "nowhere.invalid")
}

func TestJumpHostForwardsNothing(t *testing.T) {
	_, _, c := farm(t, "AllowTcpForwarding no")
	connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindProxy, "jump host bastion", "AllowTcpForwarding")
}

func TestSilenceBehindTheJumpHost(t *testing.T) {
	bastion, _, c := farm(t)
	port := listener(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	c.config(t, farmConfig(bastion, &server{port: port}))
	d := c.dialer()
	d.Timeout = 2 * time.Second
	connectFails(t, d, Target{Name: "gpu01"}, KindTimeout, "said nothing for 2s")
}

func TestProxyCommand(t *testing.T) {
	bastion, inner, c := farm(t)
	known := "UserKnownHostsFile " + c.path("known_hosts") + "\n"
	through := fmt.Sprintf("ProxyCommand ssh -F none -i %s -o UserKnownHostsFile=%s -W %%h:%%p -p %d root@127.0.0.1\n",
		c.path("id_ed25519"), c.path("known_hosts"), bastion.port)
	c.config(t, fmt.Sprintf("Host gpu01\nHostName 127.0.0.1\nPort %d\n%s%s", inner.port, through, known))
	h := connect(t, c.dialer(), Target{Name: "gpu01"})
	p := begin(t, h, agentLaunch("pwd"))
	if text := output(t, p); text != "/root\n" {
		t.Fatalf("output %q", text)
	}
	must(t, h.Close())
	c.config(t, "ProxyCommand no-such-tool --to %h\n")
	connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindProxy, "ProxyCommand failed", "no-such-tool")
	c.config(t, "ProxyCommand nc %q\n")
	connectFails(t, c.dialer(), Target{Name: "gpu01"}, KindConfig, "config line 1", "%q")
	c.config(t, "ProxyCommand sleep 60\n")
	d := c.dialer()
	d.Timeout = 300 * time.Millisecond
	connectFails(t, d, Target{Name: "gpu01"}, KindTimeout, "through the ProxyCommand")
}

// A jump host that has fallen silent holds nobody up for long.
func TestCloseThroughADeadJumpHost(t *testing.T) {
	bastion, _, c := farm(t)
	d := c.dialer()
	h := connect(t, d, Target{Name: "gpu01"})
	for _, pid := range children(t, bastion.cmd.Process.Pid) {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
	if len(d.hops.open) != 0 {
		t.Fatal("the jump host's connection is left open")
	}
}

// A lost jump host is connected to anew.
func TestJumpHostIsLost(t *testing.T) {
	bastion, _, c := farm(t)
	d := c.dialer()
	h := connect(t, d, Target{Name: "gpu01"})
	for _, pid := range children(t, bastion.cmd.Process.Pid) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	waitFor(t, "the loss to be seen", h.(*sshHost).isLost)
	connect(t, d, Target{Name: "gpu01"})
	must(t, h.Close())
}
