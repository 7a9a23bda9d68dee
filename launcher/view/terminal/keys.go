package terminal

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ListenForKeys does what keys stand for when they are typed at the terminal. The terminal itself is
// read, not standard input, and only while this process is in its foreground: a job in
// the background that touches the terminal would be stopped for it.
func ListenForKeys(does map[byte]func()) (end func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return func() {}
	}
	k := &keys{tty: tty, does: does, done: make(chan struct{})}
	k.workers.Go(k.run)
	return k.end
}

type keys struct {
	tty     *os.File
	does    map[byte]func()
	done    chan struct{}
	workers sync.WaitGroup

	mu    sync.Mutex
	saved *unix.Termios // the terminal as it was; nil while it is as it was
}

// run turns line editing and echo off while in the foreground, gives the terminal back
// before the process is stopped (Ctrl-Z), and takes it again when it goes on.
func (k *keys) run() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT)
	defer signal.Stop(signals)
	k.take()
	go k.read()
	for {
		select {
		case <-k.done:
			return
		case s := <-signals:
			if s == syscall.SIGCONT {
				k.take()
				continue
			}
			k.giveBack()
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		}
	}
}

func (k *keys) inForeground() bool {
	group, err := unix.IoctlGetInt(int(k.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (k *keys) take() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saved != nil || !k.inForeground() {
		return
	}
	now, err := unix.IoctlGetTermios(int(k.tty.Fd()), getTermios)
	if err != nil {
		return
	}
	quiet := *now
	quiet.Lflag &^= unix.ICANON | unix.ECHO
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(int(k.tty.Fd()), setTermios, &quiet) == nil {
		k.saved = now
	}
}

func (k *keys) giveBack() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saved != nil && k.inForeground() {
		_ = unix.IoctlSetTermios(int(k.tty.Fd()), setTermios, k.saved)
	}
	k.saved = nil
}

func (k *keys) isTaken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved != nil
}

// read waits for keys while the terminal is taken; it is left waiting when the process
// ends.
func (k *keys) read() {
	buf := make([]byte, 1)
	for k.isTaken() {
		n, err := k.tty.Read(buf)
		if err != nil {
			return
		}
		if does := k.does[buf[0]]; n == 1 && does != nil {
			does()
		}
	}
}

func (k *keys) end() {
	close(k.done)
	k.workers.Wait()
	k.giveBack()
}
