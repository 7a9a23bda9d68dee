package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/report"
)

// This program stands in for all of muster's on this machine, as a build without carried
// programs does.
func TestMain(m *testing.M) {
	if status, ok := onHost(os.Args[1:]); ok {
		os.Exit(status)
	}
	testscript.Main(m, map[string]func(){"muster": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command that has to end with a status: exits STATUS COMMAND...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func TestReorder_FlagsMayFollowArguments(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{[]string{"muster"}, []string{"muster"}},
		{[]string{"muster", "--version"}, []string{"muster", "--version"}},
		{[]string{"muster", "unknown", "a", "-b"}, []string{"muster", "unknown", "a", "-b"}},
		{[]string{"muster", "run", "j.hcl", "--detach"}, []string{"muster", "run", "--detach", "--", "j.hcl"}},
		{[]string{"muster", "run", "j.hcl", "-var", "a=1", "--ranks", "0"}, []string{"muster", "run", "-var", "a=1", "--ranks", "0", "--", "j.hcl"}},
		{[]string{"muster", "run", "j.hcl", "--var=a=1", "x"}, []string{"muster", "run", "--var=a=1", "--", "j.hcl", "x"}},
		{[]string{"muster", "logs", "-", "-f"}, []string{"muster", "logs", "-f", "--", "-"}},
		{[]string{"muster", "run", "--detach", "j.hcl", "--", "--lr", "3"}, []string{"muster", "run", "--detach", "--", "j.hcl", "--", "--lr", "3"}},
		{[]string{"muster", "run", "j.hcl", "--ranks"}, []string{"muster", "run", "--ranks", "--", "j.hcl"}},
	} {
		if got := reorder(newApp(), test.args); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}

func TestSplit_OnlyTheFirstDashesSeparate(t *testing.T) {
	own, after := split([]string{"j.hcl", "--", "a", "--", "b"})
	if !slices.Equal(own, []string{"j.hcl"}) || !slices.Equal(after, []string{"a", "--", "b"}) {
		t.Errorf("%q, %q", own, after)
	}
}

func TestExitStatus_FollowsFromTheError(t *testing.T) {
	closed := func(path string) error { return &os.PathError{Op: "write", Path: path, Err: syscall.EPIPE} }
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"no error":                   {nil, 0},
		"a worker's status":          {exitError(7), 7},
		"bad flags":                  {usage("no"), 64},
		"what the error asks for":    {report.Errorf(report.ExitUnreachable, "no"), 69},
		"the same, wrapped":          {fmt.Errorf("run: %w", report.Errorf(report.ExitRefused, "no")), 75},
		"anything else":              {errors.New("no"), 70},
		"a reader that has gone":     {closed("/dev/stdout"), 0},
		"a reader of something else": {closed("/tmp/pipe"), 70},
	} {
		if got := exitStatus(test.err); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestSignals_CtrlCStopsThenKillsThenLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, out, done := make(chan os.Signal), make(chan launcher.Request), make(chan struct{})
		var left []int
		go passOn(signals, out, done, func(exit int) { left = append(left, exit) })
		for i, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGINT} {
			signals <- s
			r := <-out
			if !r.Stop || r.Kill != (i >= 1) || r.Leave != (i >= 2) {
				t.Errorf("signal %d: %+v", i+1, r)
			}
		}
		if !slices.Equal(left, []int{report.ExitInterrupted}) {
			t.Errorf("leaves with %v", left)
		}
		close(done)
	})
}

func TestSignals_AreRequests(t *testing.T) {
	for s, want := range map[os.Signal]launcher.Request{
		syscall.SIGHUP:  {Detach: true, Exit: 129, Reason: "SIGHUP (the terminal was closed)"},
		syscall.SIGTERM: {Stop: true, Exit: 143, Reason: "SIGTERM"},
		syscall.SIGINT:  {Stop: true, Exit: 130, Reason: "Ctrl-C"},
		syscall.SIGQUIT: {State: true},
		syscall.SIGUSR1: {Signal: "SIGUSR1"},
		syscall.SIGUSR2: {Signal: "SIGUSR2"},
	} {
		if got := requestOf(s); got != want {
			t.Errorf("%v: %+v", s, got)
		}
	}
}
