package remote

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// pair is a server and a client that know each other.
func pair(t testing.TB, options ...string) (*server, *client) {
	t.Helper()
	c := newClient(t)
	s := newServer(t, []ssh.PublicKey{c.key}, options...)
	c.knows(t, s, "ed25519")
	return s, c
}

func begin(t testing.TB, h Host, launch Launch) *Process {
	t.Helper()
	p, err := h.Start(bounded(t), launch)
	must(t, err)
	return p
}

func agentLaunch(args ...string) Launch { return Launch{Program: "muster-agent", Args: args} }

func output(t testing.TB, p *Process) string {
	t.Helper()
	text, err := io.ReadAll(p.Stdout)
	must(t, err)
	return string(text)
}

func TestStartInstallsOnceAndTalks(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	for range 2 {
		p := begin(t, h, agentLaunch())
		lines := bufio.NewReader(p.Stdout)
		first, err := lines.ReadString('\n')
		must(t, err)
		if !strings.HasPrefix(first, "hello from "+s.cache+"/muster/bin/muster-agent-") {
			t.Fatalf("first line %q", first)
		}
		_, err = io.WriteString(p.Stdin, "one\n")
		must(t, err)
		if got, _ := lines.ReadString('\n'); got != "got one\n" {
			t.Fatalf("answer %q", got)
		}
		must(t, p.Stdin.Close())
		if rest, _ := io.ReadAll(lines); string(rest) != "bye\n" {
			t.Fatalf("rest %q", rest)
		}
		must(t, p.Wait())
	}
	entries, err := os.ReadDir(filepath.Join(s.cache, "muster/bin"))
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("left in the cache: %v", entries)
	}
}

func TestProcessEnds(t *testing.T) {
	s, c := pair(t)
	h := connect(t, c.dialer(), s.target())
	p := begin(t, h, agentLaunch("exit", "7"))
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Status != 7 {
		t.Fatalf("want status 7, got %v", err)
	}
	if p.Stderr() != "last words\n" {
		t.Fatalf("stderr %q", p.Stderr())
	}
	p = begin(t, h, agentLaunch("kill", "TERM"))
	if err := p.Wait(); !errors.As(err, &exit) || exit.Signal != "TERM" || exit.Status != 143 {
		t.Fatalf("want SIGTERM, got %v", err)
	}
}
