package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// startAgent is an ssh-agent with keys.
func startAgent(t testing.TB, keys ...any) string {
	t.Helper()
	ring := agent.NewKeyring()
	for i, key := range keys {
		must(t, ring.Add(agent.AddedKey{PrivateKey: key, Comment: fmt.Sprintf("key %d", i)}))
	}
	path := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	must(t, err)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				agent.ServeAgent(ring, conn)
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return path
}

func TestEncryptedKeyIsAskedForOnce(t *testing.T) {
	for _, withPublic := range []bool{true, false} {
		t.Run(fmt.Sprintf("public half beside it %v", withPublic), func(t *testing.T) {
			c := newClient(t)
			key := writeKey(t, c.path("id_ed25519"), newEd25519(t), "open sesame")
			if !withPublic {
				must(t, os.Remove(c.path("id_ed25519.pub")))
			}
			user := &answers{phrase: "open sesame"}
			d := c.dialer()
			d.Prompter = user
			var targets []Target
			for range 4 {
				s := newServer(t, []ssh.PublicKey{key})
				c.knows(t, s, "ed25519")
				targets = append(targets, s.target())
			}
			hosts, errs := connectAll(bounded(t), d, targets)
			must(t, errors.Join(errs...))
			for _, h := range hosts {
				must(t, h.Close())
			}
			if len(user.asked) != 1 || !strings.Contains(user.asked[0], "~/.ssh/id_ed25519") {
				t.Fatalf("asked %q", user.asked)
			}
		})
	}
}

func TestOpaqueKeyIsAskedForLast(t *testing.T) {
	s, c := pair(t)
	key := testKeys()["rsa"]
	writeOpaque(t, c.path("id_rsa"), key)
	user := &answers{phrase: "open sesame"}
	d := c.dialer()
	d.Prompter = user
	connect(t, d, s.target())
	if len(user.asked) != 0 {
		t.Fatalf("asked %q", user.asked)
	}
	other := newServer(t, []ssh.PublicKey{publicOf(t, key)})
	c.knows(t, other, "ed25519")
	connect(t, d, other.target())
	if len(user.asked) != 1 {
		t.Fatalf("asked %q", user.asked)
	}
}

func TestEncryptedKeyTheHostRefusesIsNotAskedFor(t *testing.T) {
	s, c := pair(t)
	writeKey(t, c.path("id_ed25519"), newEd25519(t), "secret")
	d := c.dialer()
	user := &answers{phrase: "secret"}
	d.Prompter = user
	connectFails(t, d, s.target(), KindAuth, "~/.ssh/id_ed25519 ED25519 (refused)", "ssh-copy-id")
	if len(user.asked) != 0 {
		t.Fatalf("asked %q", user.asked)
	}
}

func TestWrongPassphrase(t *testing.T) {
	c := newClient(t)
	key := writeKey(t, c.path("id_ed25519"), newEd25519(t), "right")
	s := newServer(t, []ssh.PublicKey{key})
	c.knows(t, s, "ed25519")
	d := c.dialer()
	user := &answers{phrase: "wrong"}
	d.Prompter = user
	for range 2 {
		connectFails(t, d, s.target(), KindAuth, "passphrase was not given")
	}
	if len(user.asked) != 3 {
		t.Fatalf("asked %d times", len(user.asked))
	}
	d = c.dialer()
	connectFails(t, d, s.target(), KindAuth, "encrypted and there is no terminal")
}

func TestOtherKeyAfterAnEncryptedOne(t *testing.T) {
	c := newClient(t)
	locked := writeKey(t, c.path("id_ed25519"), newEd25519(t), "secret")
	open := writeKey(t, c.path("id_ecdsa"), testKeys()["ecdsa"], "")
	s := newServer(t, []ssh.PublicKey{locked, open})
	c.knows(t, s, "ed25519")
	connect(t, c.dialer(), s.target())
}

func TestAgentKeys(t *testing.T) {
	c := newClient(t)
	must(t, os.Remove(c.path("id_ed25519")))
	key := newEd25519(t)
	s := newServer(t, []ssh.PublicKey{publicOf(t, key)})
	c.knows(t, s, "ed25519")
	t.Setenv("SSH_AUTH_SOCK", startAgent(t, testKeys()["rsa"], key))
	connect(t, c.dialer(), s.target())
	c.config(t, "IdentityAgent none\n")
	connectFails(t, c.dialer(), s.target(), KindAuth, "permission denied for user root", "publickey")
	other := startAgent(t)
	c.config(t, "IdentityAgent "+other+"\n")
	connectFails(t, c.dialer(), s.target(), KindAuth)
	c.config(t, "IdentityAgent /does/not/exist\n")
	connectFails(t, c.dialer(), s.target(), KindAuth, "ssh-agent at /does/not/exist")
}

// An agent full of keys reaches the server's MaxAuthTries before the right one.
func TestIdentitiesOnly(t *testing.T) {
	c := newClient(t)
	var keys []any
	for range 8 {
		keys = append(keys, newEd25519(t))
	}
	right := newEd25519(t)
	s := newServer(t, []ssh.PublicKey{publicOf(t, right)})
	c.knows(t, s, "ed25519")
	t.Setenv("SSH_AUTH_SOCK", startAgent(t, append(keys, right)...))
	connectFails(t, c.dialer(), s.target(), KindAuth, "Too many authentication failures", "IdentitiesOnly")
	write(t, c.path("mine.pub"), string(ssh.MarshalAuthorizedKey(publicOf(t, right))))
	c.config(t, "IdentityFile %d/.ssh/mine.pub\n")
	connect(t, c.dialer(), s.target()) // configured keys go first
	c.config(t, "IdentityFile ~/.ssh/mine.pub\nIdentitiesOnly yes\n")
	connect(t, c.dialer(), s.target())
	c.config(t, "IdentitiesOnly yes\n")
	connectFails(t, c.dialer(), s.target(), KindAuth, "~/.ssh/id_ed25519 ED25519 (refused)")
}

func TestUserCertificate(t *testing.T) {
	c := newClient(t)
	authority, err := ssh.NewSignerFromKey(newEd25519(t))
	must(t, err)
	cert := &ssh.Certificate{Key: c.key, CertType: ssh.UserCert, ValidPrincipals: []string{"root"}, ValidBefore: ssh.CertTimeInfinity}
	must(t, cert.SignCert(strings.NewReader(strings.Repeat("x", 1000)), authority))
	trusted := write(t, filepath.Join(t.TempDir(), "ca.pub"), string(ssh.MarshalAuthorizedKey(authority.PublicKey())))
	s := newServer(t, nil, "TrustedUserCAKeys "+trusted)
	c.knows(t, s, "ed25519")
	connectFails(t, c.dialer(), s.target(), KindAuth)
	write(t, c.path("id_ed25519-cert.pub"), string(ssh.MarshalAuthorizedKey(cert)))
	connect(t, c.dialer(), s.target())
	must(t, os.Rename(c.path("id_ed25519-cert.pub"), c.path("cert")))
	c.config(t, "CertificateFile ~/.ssh/cert\n")
	connect(t, c.dialer(), s.target())
}

func TestKeysThatCannotBeUsedAreNamed(t *testing.T) {
	s, c := pair(t)
	must(t, os.Chmod(c.path("id_ed25519"), 0o644))
	write(t, c.path("broken"), "no key")
	c.config(t, "IdentityFile ~/.ssh/id_ed25519\nIdentityFile ~/.ssh/broken\nIdentityFile ~/.ssh/absent\n")
	connectFails(t, c.dialer(), s.target(), KindAuth,
		"others may read it (mode 0644)", "~/.ssh/broken (no key found)", "~/.ssh/absent (no such file)")
}

func TestSecondFactorIsNamed(t *testing.T) {
	s, c := pair(t, "AuthenticationMethods publickey,password", "PasswordAuthentication yes")
	connectFails(t, c.dialer(), s.target(), KindAuth, "asks for more")
}

func TestNoUserInTheWay(t *testing.T) {
	s, c := pair(t)
	c.config(t, "User nobody\n")
	connectFails(t, c.dialer(), s.target(), KindAuth, "user nobody")
	connect(t, c.dialer(), Target{Name: "127.0.0.1", Port: s.port, User: "root"})
}
