package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/muster-dev/muster/launcher"
	"github.com/muster-dev/muster/launcher/report"
)

// listenForSignals turns signals into wishes to end the run. An ignored SIGHUP (nohup)
// stays ignored.
func listenForSignals() (stops <-chan launcher.Stop, end func()) {
	// A pipe without reader shows as an error of the write; the run goes on without it.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	wishes := make(chan launcher.Stop, 8)
	done := make(chan struct{})
	go func() {
		count := 0
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP {
					count++
				}
				wishes <- wish(s, count)
			case <-done:
				return
			}
		}
	}()
	return wishes, func() { signal.Stop(signals); close(done) }
}

func wish(s os.Signal, count int) launcher.Stop {
	w := launcher.Stop{Exit: report.ExitInterrupted, Reason: "Ctrl-C", Kill: count >= 2, Leave: count >= 3}
	switch s {
	case syscall.SIGTERM:
		w.Exit, w.Reason = report.ExitTerminated, "SIGTERM"
	case syscall.SIGHUP:
		w = launcher.Stop{Exit: report.ExitHangup, Reason: "SIGHUP (the terminal was closed)", Detach: true}
	}
	return w
}

// untilSignal is a context that the first Ctrl-C or SIGTERM ends.
func untilSignal() (context.Context, func()) {
	stops, end := listenForSignals()
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case s := <-stops:
			cancel(&launcher.Failure{Exit: s.Exit, Message: s.Reason})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); end() }
}
