package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// answers is a user who says the same to every question.
type answers struct {
	mu     sync.Mutex
	yes    bool
	phrase string
	asked  []string
	at     int // questions on screen; more than one is a fault
	most   int
}

func (a *answers) ask(question string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, question)
	a.at++
	a.most = max(a.most, a.at)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at--
	}
}

func (a *answers) Confirm(question string) (bool, error) {
	defer a.ask(question)()
	return a.yes, nil
}

func (a *answers) Secret(question string) (string, error) {
	defer a.ask(question)()
	return a.phrase, nil
}

func connectFails(t *testing.T, d *Dialer, target Target, kind Kind, words ...string) *ConnectError {
	t.Helper()
	h, err := d.Connect(bounded(t), target)
	if err == nil {
		h.Close()
		t.Fatalf("connected to %v", target)
	}
	var failed *ConnectError
	if !errors.As(err, &failed) {
		t.Fatalf("%T is no ConnectError: %v", err, err)
	}
	if failed.Kind != kind {
		t.Fatalf("kind %s, want %s: %v", failed.Kind, kind, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q lacks %q", err, word)
		}
	}
	t.Logf("%v", err)
	return failed
}

func TestRecordedKeyTypesAreOffered(t *testing.T) {
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			c := newClient(t)
			s := newServer(t, []ssh.PublicKey{c.key})
			c.knows(t, s, kind)
			connect(t, c.dialer(), s.target())
		})
	}
}

func TestUnknownHostWithoutTerminalIsRefused(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	connectFails(t, c.dialer(), s.target(), KindUnknownKey,
		ssh.FingerprintSHA256(s.keys["ed25519"]), fmt.Sprintf("ssh-keyscan -p %d -t ed25519 127.0.0.1 >> ~/.ssh/known_hosts", s.port))
	if _, err := os.Stat(c.path("known_hosts")); !os.IsNotExist(err) {
		t.Fatal("something was recorded")
	}
}

func TestUnknownHostIsAskedAboutAndRecorded(t *testing.T) {
	for _, hash := range []string{"no", "yes"} {
		t.Run("HashKnownHosts "+hash, func(t *testing.T) {
			c := newClient(t)
			c.config(t, "HashKnownHosts "+hash+"\n")
			write(t, c.path("known_hosts"), "# no line end")
			s := newServer(t, []ssh.PublicKey{c.key})
			user := &answers{yes: true}
			d := c.dialer()
			d.Prompter = user
			connect(t, d, s.target())
			connect(t, d, s.target())
			connect(t, c.dialer(), s.target())
			if len(user.asked) != 1 || !strings.Contains(user.asked[0], ssh.FingerprintSHA256(s.keys["ed25519"])) {
				t.Fatalf("asked %q", user.asked)
			}
			text, err := os.ReadFile(c.path("known_hosts"))
			must(t, err)
			if strings.Contains(string(text), "127.0.0.1") == (hash == "yes") || !strings.Contains(string(text), "# no line end\n") {
				t.Fatalf("recorded %q", text)
			}
		})
	}
}

func TestUserSaysNo(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	d := c.dialer()
	d.Prompter = &answers{}
	connectFails(t, d, s.target(), KindUnknownKey)
}

func TestStrictHostKeyChecking(t *testing.T) {
	for value, wantAsked := range map[string]int{"yes": 0, "no": 1, "off": 1, "ask": 1, "accept-new": 0} {
		t.Run(value, func(t *testing.T) {
			c := newClient(t)
			c.config(t, "StrictHostKeyChecking "+value+"\n")
			s := newServer(t, []ssh.PublicKey{c.key})
			user := &answers{}
			var notices []string
			d := c.dialer()
			d.Prompter, d.Notice = user, func(text string) { notices = append(notices, text) }
			h, err := d.Connect(bounded(t), s.target())
			if h != nil {
				h.Close()
			}
			accepts := value == "accept-new"
			if (err == nil) != accepts || len(user.asked) != wantAsked || (len(notices) == 1) != accepts {
				t.Fatalf("error %v, asked %q, notices %q", err, user.asked, notices)
			}
		})
	}
}

func TestQuestionsComeOneAtATime(t *testing.T) {
	c := newClient(t)
	user := &answers{yes: true}
	d := c.dialer()
	d.Prompter = user
	var targets []Target
	for range 3 {
		targets = append(targets, newServer(t, []ssh.PublicKey{c.key}).target())
	}
	hosts, errs := connectAll(bounded(t), d, targets)
	must(t, errors.Join(errs...))
	for _, h := range hosts {
		must(t, h.Close())
	}
	if len(user.asked) != 3 || user.most != 1 {
		t.Fatalf("asked %d, at once %d", len(user.asked), user.most)
	}
}

func TestChangedKey(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	s.keys["ed25519"] = publicOf(t, newEd25519(t))
	c.knows(t, s, "ed25519")
	d := c.dialer()
	d.Prompter = &answers{yes: true}
	connectFails(t, d, s.target(), KindChangedKey, c.path("known_hosts")+":1", "ssh-keygen -R", fmt.Sprintf("[127.0.0.1]:%d", s.port))
}

func TestRecordedTypeIsGone(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key}, "HostKeyAlgorithms rsa-sha2-512")
	c.knows(t, s, "ed25519")
	connectFails(t, c.dialer(), s.target(), KindChangedKey, c.path("known_hosts")+":1")
}

func TestRevokedKey(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	c.knows(t, s, "ed25519")
	text, err := os.ReadFile(c.path("known_hosts"))
	must(t, err)
	write(t, c.path("known_hosts"), string(text)+"@revoked * "+string(ssh.MarshalAuthorizedKey(s.keys["ed25519"])))
	connectFails(t, c.dialer(), s.target(), KindRevokedKey, c.path("known_hosts")+":2")
}

func TestHostCertificate(t *testing.T) {
	c := newClient(t)
	authority, err := ssh.NewSignerFromKey(newEd25519(t))
	must(t, err)
	cert := &ssh.Certificate{
		Key: publicOf(t, testKeys()["ed25519"]), CertType: ssh.HostCert, ValidPrincipals: []string{"gpu03"}, ValidBefore: ssh.CertTimeInfinity,
	}
	must(t, cert.SignCert(strings.NewReader(strings.Repeat("x", 1000)), authority))
	file := write(t, filepath.Join(t.TempDir(), "host-cert.pub"), string(ssh.MarshalAuthorizedKey(cert)))
	s := newServer(t, []ssh.PublicKey{c.key}, "HostCertificate "+file)
	write(t, c.path("known_hosts"), "@cert-authority gpu* "+string(ssh.MarshalAuthorizedKey(authority.PublicKey())))
	c.config(t, fmt.Sprintf("Host gpu*\nHostName 127.0.0.1\nPort %d\nHostKeyAlias %%n\nHost gpu03\nHost alias\nHostName 127.0.0.1\nPort %d\nHostKeyAlias gpu03", s.port, s.port))
	connect(t, c.dialer(), Target{Name: "alias"})
	c.config(t, fmt.Sprintf("Host gpu04\nHostName 127.0.0.1\nPort %d\nHostKeyAlias gpu04\n", s.port))
	connectFails(t, c.dialer(), Target{Name: "gpu04"}, KindUnknownKey, "certificate")
}

func TestHostKeyAliasAndBareNames(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	key := string(ssh.MarshalAuthorizedKey(s.keys["ecdsa"]))
	write(t, c.path("known_hosts"), "gpu-farm "+key)
	c.config(t, "HostKeyAlias gpu-farm\n")
	connect(t, c.dialer(), s.target())
	// As in ssh, a key recorded without a port serves other ports too.
	write(t, c.path("known_hosts"), "127.0.0.1 "+key)
	c.config(t, "")
	connect(t, c.dialer(), s.target())
}

func TestKnownHostsFilesOfTheConfiguration(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	c.knows(t, s, "rsa")
	must(t, os.Rename(c.path("known_hosts"), c.path("second")))
	c.config(t, "UserKnownHostsFile ~/.ssh/first ~/.ssh/second\nGlobalKnownHostsFile none\n")
	connect(t, c.dialer(), s.target())
}

func TestUnwritableRecordIsSaid(t *testing.T) {
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key})
	c.config(t, "UserKnownHostsFile /dev/null/known_hosts\n")
	var notices []string
	d := c.dialer()
	d.Prompter, d.Notice = &answers{yes: true}, func(text string) { notices = append(notices, text) }
	_, err := d.Connect(context.Background(), s.target())
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Fatalf("error %v, notices %q", err, notices)
	}
}
