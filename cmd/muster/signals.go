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
)

// listenForWishes turns signals, and the key d in a terminal, into wishes. What is ignored
// already stays so: SIGHUP under nohup, Ctrl-C where a script has put muster into the
// background.
func listenForWishes(keys bool) (wishes <-chan launcher.Wish, end func()) {
	// A pipe without reader shows as an error of the write; the run goes on without it.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	out := make(chan launcher.Wish, 16)
	done := make(chan struct{})
	var workers sync.WaitGroup
	closeKeys := func() {}
	if keys {
		closeKeys = sync.OnceFunc(listenForKeys(map[byte]func(){'d': func() { out <- launcher.Wish{Detach: true, Reason: "detached"} }}))
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

// passOn makes wishes of signals; leave is called when all that muster may still do is to
// leave.
func passOn(signals <-chan os.Signal, out chan<- launcher.Wish, done <-chan struct{}, leave func(exit int)) {
	stops := 0
	for {
		select {
		case s := <-signals:
			w := wishOf(s)
			if w.Stop {
				stops++
				w.Kill, w.Leave = stops >= 2, stops >= 3
			}
			if w.Leave {
				leave(w.Exit)
			}
			select {
			case out <- w:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}

func wishOf(s os.Signal) launcher.Wish {
	switch s {
	case syscall.SIGTERM:
		return launcher.Wish{Stop: true, Exit: report.ExitTerminated, Reason: "SIGTERM"}
	case syscall.SIGHUP:
		return launcher.Wish{Detach: true, Exit: report.ExitHangup, Reason: "SIGHUP (the terminal was closed)"}
	case syscall.SIGQUIT:
		return launcher.Wish{State: true}
	case syscall.SIGUSR1:
		return launcher.Wish{Signal: "SIGUSR1"}
	case syscall.SIGUSR2:
		return launcher.Wish{Signal: "SIGUSR2"}
	}
	return launcher.Wish{Stop: true, Exit: report.ExitInterrupted, Reason: "Ctrl-C"}
}

// untilSignal is a context that the first Ctrl-C, SIGTERM or SIGHUP ends.
func untilSignal() (context.Context, func()) {
	wishes, end := listenForWishes(false)
	ctx, cancel := context.WithCancelCause(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case w := <-wishes:
				if w.Exit != 0 {
					cancel(&launcher.Failure{Exit: w.Exit, Message: w.Reason})
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() { cancel(nil); waiting.Wait(); end() }
}
