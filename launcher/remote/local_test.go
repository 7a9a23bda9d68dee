package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func newLocal(t *testing.T) *Local {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	commands := map[string][]string{}
	for name, text := range testPrograms() {
		path := write(t, filepath.Join(dir, name), text)
		must(t, os.Chmod(path, 0o700))
		commands[name] = []string{path}
	}
	l, err := NewLocal("local", commands, nil)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLocalStart(t *testing.T) {
	l := newLocal(t)
	p := begin(t, l, agentLaunch())
	lines := bufio.NewReader(p.Stdout)
	first, err := lines.ReadString('\n')
	must(t, err)
	if first != "hello from "+l.commands["muster-agent"][0]+"\n" {
		t.Fatalf("first line %q", first)
	}
	io.WriteString(p.Stdin, "one\n")
	if got, _ := lines.ReadString('\n'); got != "got one\n" {
		t.Fatalf("answer %q", got)
	}
	must(t, p.Stdin.Close())
	must(t, p.Wait())
	must(t, p.Wait())
	if rest, _ := io.ReadAll(lines); string(rest) != "bye\n" {
		t.Fatalf("what the program left is %q", rest)
	}
}

func TestLocalArguments(t *testing.T) {
	l := newLocal(t)
	args := append([]string{"args", "{muster}"}, awkward...)
	p := begin(t, l, Launch{Program: "muster-agent", Also: []string{"muster"}, Args: args})
	want := "<" + l.commands["muster"][0] + ">\n<" + strings.Join(awkward, ">\n<") + ">\n"
	if got := output(t, p); got != want {
		t.Fatalf("arguments %q", got)
	}
	startFails(t, l, Launch{Program: "nonsense"}, KindProgram, "nonsense")
	startFails(t, l, agentLaunch("{nonsense}"), KindProgram, "nonsense")
	p = begin(t, l, agentLaunch("pwd"))
	if got := output(t, p); got != os.Getenv("HOME")+"\n" {
		t.Fatalf("started in %q", got)
	}
}

func TestLocalEnds(t *testing.T) {
	l := newLocal(t)
	p := begin(t, l, agentLaunch("exit", "7"))
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Status != 7 || p.Stderr() != "last words\n" {
		t.Fatalf("error %v, stderr %q", err, p.Stderr())
	}
	p = begin(t, l, agentLaunch("kill", "TERM"))
	if err := p.Wait(); !errors.As(err, &exit) || exit.Signal != "TERM" || exit.Status != 143 {
		t.Fatalf("error %v", err)
	}
}

// A program outlives its host, in a session that a terminal's signals do not reach.
func TestLocalSession(t *testing.T) {
	l := newLocal(t)
	p := begin(t, l, agentLaunch("session"))
	var pid, group int
	_, err := fmt.Fscan(p.Stdout, &pid)
	must(t, err)
	group, err = syscall.Getpgid(pid)
	must(t, err)
	if group != pid || group == syscall.Getpgrp() {
		t.Fatalf("process %d is of group %d", pid, group)
	}
	must(t, l.Close())
	must(t, syscall.Kill(pid, 0))
	must(t, syscall.Kill(pid, syscall.SIGTERM))
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Signal != "TERM" {
		t.Fatalf("error %v", err)
	}
	startFails(t, l, agentLaunch("pwd"), KindProgram, "closed")
}

func TestLocalDialUnix(t *testing.T) {
	l := newLocal(t)
	echoes(t, l, echoSocket(t))
	fails(t, l, filepath.Join(t.TempDir(), "absent"))
}

func TestSelf(t *testing.T) {
	l, err := NewLocal("local", nil, nil)
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	argv, err := l.commandLine(agentLaunch("x", "{muster}"))
	must(t, err)
	if strings.Join(argv, " ") != exe+" agent x "+exe {
		t.Fatalf("command line %q", argv)
	}
}

func TestACarriedProgramIsInstalledHere(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	l, err := NewLocal("local", map[string][]string{"sh": {"/bin/sh"}}, fakePrograms{"helper": "#!/bin/sh\necho helped\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // the second finds it there
		p, err := l.Start(t.Context(), Launch{Program: "sh", Optional: []Optional{{Program: "helper"}, {Program: "other"}}, Args: []string{"-c", `echo "$2"; exec "$1"`, "x", "{helper}", "{other}"}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(p.Stdout)
		if err != nil || string(out) != "\nhelped\n" {
			t.Errorf("said %q (%v)", out, err)
		}
	}
	if _, err := l.Start(t.Context(), Launch{Program: "sh", Args: []string{"{other}"}}); err == nil {
		t.Error("a program that is not here was started")
	}
}
