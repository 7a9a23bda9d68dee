//go:build linux

package mps

import (
	"os"
	"slices"
	"strconv"
	"time"
)

func (d *daemon) startServer(args []string) reply {
	if len(args) != 2 || args[0] != "-uid" {
		return say(badArgument)
	}
	uid, err := strconv.Atoi(args[1])
	if err != nil {
		return say(badArgument)
	}
	if uid != os.Getuid() && os.Getuid() != 0 {
		return say(insufficient, os.Getuid(), "start a server of another user")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.servers) == 0 && !d.quitting {
		d.start(uid)
	}
	return reply{}
}

func (d *daemon) shutdownServer(s *served, args []string) reply {
	if slices.Contains(args, "-f") {
		d.mu.Lock()
		s.retiring = true
		d.mu.Unlock()
		s.kill()
		<-s.exited
		return reply{}
	}
	n, answered := s.ask(order{Do: "list"})
	if !answered {
		return say(serverBusy, s.pid)
	}
	d.mu.Lock()
	s.retire()
	d.mu.Unlock()
	if n.Active > 0 {
		d.log.line("Control", "Control will try shutting down server %d again in at most %d ms", s.pid, 1000)
		return say(activeThreads, s.pid, n.Active)
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
	}
	return reply{}
}

func (d *daemon) terminateClient(s *served, args []string) reply {
	if len(args) != 1 {
		return say(badArgument)
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return say(badArgument)
	}
	n, answered := s.ask(order{Do: "terminate", PID: pid})
	switch {
	case !answered:
		return say(serverBusy, s.pid)
	case !n.Found:
		return say(badProcess, pid)
	}
	return reply{}
}

func (d *daemon) quitCommand(args []string) reply {
	after := time.Duration(-1)
	if len(args) == 2 && args[0] == "-t" {
		seconds, err := strconv.Atoi(args[1])
		if err != nil || seconds < 0 {
			return say(badArgument)
		}
		after = time.Duration(seconds) * time.Second
		d.log.line("Control", "quit command issued with timeout of %d", seconds)
	} else if len(args) != 0 {
		return say(badArgument)
	}
	if !d.quit(after) {
		return reply{Status: 1}
	}
	return reply{}
}
