package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// keys are made once: an RSA key takes a while.
var testKeys = sync.OnceValue(func() map[string]any {
	rsaKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	ecdsaKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, err3 := ed25519.GenerateKey(rand.Reader)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			panic(err)
		}
	}
	return map[string]any{"rsa": rsaKey, "ecdsa": ecdsaKey, "ed25519": &edKey}
})

func newEd25519(t testing.TB) any {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return &key
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// writeKey writes a private key and its public half beside it.
func writeKey(t testing.TB, path string, key any, passphrase string) ssh.PublicKey {
	t.Helper()
	var block *pem.Block
	var err error
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(passphrase))
	}
	must(t, err)
	write(t, path, string(pem.EncodeToMemory(block)))
	public := publicOf(t, key)
	write(t, path+".pub", string(ssh.MarshalAuthorizedKey(public)))
	return public
}

func publicOf(t testing.TB, key any) ssh.PublicKey {
	t.Helper()
	signer, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return signer.PublicKey()
}

// server is a real sshd on the loopback device.
type server struct {
	port  int
	dir   string
	cache string // XDG_CACHE_HOME of what it starts
	cmd   *exec.Cmd
	keys  map[string]ssh.PublicKey // host keys by kind
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// client is a home directory with a key, an empty ssh configuration and a record
// of hosts.
type client struct {
	home string
	key  ssh.PublicKey
}

func newClient(t testing.TB) *client {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("SSH_AUTH_SOCK", "")
	c := &client{home: home}
	c.key = writeKey(t, c.path("id_ed25519"), newEd25519(t), "")
	return c
}

func (c *client) path(name string) string { return filepath.Join(c.home, ".ssh", name) }

func (c *client) config(t testing.TB, text string) { write(t, c.path("config"), text) }

// knows writes the host keys of kinds down.
func (c *client) knows(t testing.TB, s *server, kinds ...string) {
	t.Helper()
	f, err := os.OpenFile(c.path("known_hosts"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	for _, kind := range kinds {
		fmt.Fprintln(f, knownhosts.Line([]string{s.address()}, s.keys[kind]))
	}
	must(t, f.Close())
}

func (c *client) dialer() *Dialer {
	return &Dialer{ConfigFiles: []string{c.path("config")}, Programs: testPrograms()}
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) target() Target { return Target{Name: "127.0.0.1", Port: s.port} }

// newServer starts an sshd that lets the keys in. Options are lines of its
// configuration; they come first and so win.
func newServer(t testing.TB, keys []ssh.PublicKey, options ...string) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sshd is started as root")
	}
	must(t, os.MkdirAll("/run/sshd", 0o755))
	s := &server{dir: t.TempDir(), keys: map[string]ssh.PublicKey{}, log: &syncBuffer{}}
	s.cache = filepath.Join(s.dir, "cache")
	var authorized strings.Builder
	for _, key := range keys {
		authorized.Write(ssh.MarshalAuthorizedKey(key))
	}
	lines := append(options, "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PidFile none", "LogLevel VERBOSE", "PermitRootLogin yes", "MaxStartups 100",
		"AuthorizedKeysFile "+write(t, filepath.Join(s.dir, "authorized_keys"), authorized.String()))
	if !strings.Contains(strings.Join(options, "\n"), "SetEnv") {
		lines = append(lines, "SetEnv XDG_CACHE_HOME="+s.cache)
	}
	for kind, key := range testKeys() {
		s.keys[kind] = writeKey(t, filepath.Join(s.dir, "host_"+kind), key, "")
		lines = append(lines, "HostKey "+filepath.Join(s.dir, "host_"+kind))
	}
	config := write(t, filepath.Join(s.dir, "sshd_config"), strings.Join(lines, "\n")+"\n")
	for range 10 {
		if s.start(t, config) {
			return s
		}
	}
	t.Fatalf("sshd does not start: %s", s.log)
	return nil
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start reports whether sshd listens; false: the port was taken meanwhile.
func (s *server) start(t testing.TB, config string) bool {
	t.Helper()
	s.port = freePort(t)
	s.cmd = exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config, "-o", fmt.Sprintf("ListenAddress=127.0.0.1:%d", s.port))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := s.cmd.StderrPipe()
	must(t, err)
	must(t, s.cmd.Start())
	ready, done := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(s.log, lines.Text())
			if strings.Contains(lines.Text(), "Server listening") {
				ready <- true
			}
		}
		ready <- false
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		select {
		case <-done: // its children have let go of the pipe as well
		case <-time.After(10 * time.Second):
			t.Errorf("sessions of sshd %d outlive the test", s.cmd.Process.Pid)
		}
		s.cmd.Wait()
		if t.Failed() {
			t.Logf("sshd on port %d:\n%s", s.port, s.log)
		}
	})
	return <-ready
}

// bounded is a context for everything that a test waits for.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, d *Dialer, target Target) Host {
	t.Helper()
	h, err := d.Connect(bounded(t), target)
	must(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

// writeOpaque writes a key in the old format, which hides even its public half.
func writeOpaque(t testing.TB, path string, key any) {
	t.Helper()
	writeKey(t, path, key, "")
	must(t, os.Remove(path+".pub"))
	out, err := exec.Command("ssh-keygen", "-p", "-m", "PEM", "-P", "", "-N", "open sesame", "-f", path).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
}

// children are the processes that a process started, and theirs.
func children(t testing.TB, pid int) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	var out []int
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		must(t, err)
		out = append(append(out, child), children(t, child)...)
	}
	return out
}
