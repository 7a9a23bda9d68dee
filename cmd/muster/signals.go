package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/view/terminal"
)

// listenForRequests turns signals, and the key d in a terminal, into requests. What is ignored
// already stays so: SIGHUP under nohup, Ctrl-C where a script has put muster into the
// background.
func listenForRequests(keys bool) (requests <-chan launcher.Request, end func()) {
	// A pipe without reader shows as an error of the write; the run goes on without it.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	out := make(chan launcher.Request, 16)
	done := make(chan struct{})
	var workers sync.WaitGroup
	closeKeys := func() {}
	if keys {
		closeKeys = sync.OnceFunc(terminal.ListenForKeys(map[byte]func(){'d': func() { out <- launcher.Request{Detach: true, Reason: "detached"} }}))
	}
	workers.Go(func() { passOn(signals, out, done, func(exit int) { leaveSoon(exit, closeKeys) }) })
	return out, func() {
		closeKeys()
		signal.Stop(signals)
		close(done)
		workers.Wait()
	}
}

// leaveWait is how long muster may take to leave at the third Ctrl-C: what it still has to
// say may be for a terminal that takes nothing.
const leaveWait = 2 * time.Second

// leaveSoon ends muster unless it has ended by itself by then, with the terminal as it was
// if that can be had.
func leaveSoon(exit int, closeKeys func()) {
	time.AfterFunc(leaveWait, func() {
		time.AfterFunc(leaveWait/4, func() { os.Exit(exit) })
		closeKeys()
		os.Exit(exit)
	})
}

// passOn makes requests of signals; leave is called when all that muster may still do is to
// leave.
func passOn(signals <-chan os.Signal, out chan<- launcher.Request, done <-chan struct{}, leave func(exit int)) {
	stops := 0
	for {
		select {
		case s := <-signals:
			r := requestOf(s)
			if r.Stop {
				stops++
				r.Kill, r.Leave = stops >= 2, stops >= 3
			}
			if r.Leave {
				leave(r.Exit)
			}
			select {
			case out <- r:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}

func requestOf(s os.Signal) launcher.Request {
	switch s {
	case syscall.SIGTERM:
		return launcher.Request{Stop: true, Exit: report.ExitTerminated, Reason: "SIGTERM"}
	case syscall.SIGHUP:
		return launcher.Request{Detach: true, Exit: report.ExitHangup, Reason: "SIGHUP (the terminal was closed)"}
	case syscall.SIGQUIT:
		return launcher.Request{State: true}
	case syscall.SIGUSR1:
		return launcher.Request{Signal: "SIGUSR1"}
	case syscall.SIGUSR2:
		return launcher.Request{Signal: "SIGUSR2"}
	}
	return launcher.Request{Stop: true, Exit: report.ExitInterrupted, Reason: "Ctrl-C"}
}

// untilSignal is a context that the first Ctrl-C, SIGTERM or SIGHUP ends.
func untilSignal() (context.Context, func()) {
	requests, end := listenForRequests(false)
	ctx, cancel := context.WithCancelCause(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case r := <-requests:
				if r.Exit != 0 {
					cancel(report.Errorf(r.Exit, "%s", r.Reason))
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() { cancel(nil); waiting.Wait(); end() }
}
