package remote

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster/launcher/remote/wire"
)

// channelProcess is a program at the other end of a session channel.
type channelProcess struct {
	host    *sshHost
	channel ssh.Channel
	stderr  wire.Tail

	ended   chan struct{} // closed when it is known how the program ended
	result  error         // valid once ended
	drained chan struct{} // closed when stderr was read to its end
}

// stderrGrace is how long the end of a program waits for its last words.
const stderrGrace = 500 * time.Millisecond

// process starts the goroutines that serve a session channel. They end with it.
func (h *sshHost) process(channel ssh.Channel, requests <-chan *ssh.Request) *channelProcess {
	p := &channelProcess{host: h, channel: channel, ended: make(chan struct{}), drained: make(chan struct{})}
	serving := h.work.start(func() { p.watch(requests) }) && h.work.start(p.drain)
	if !serving {
		channel.Close()
	}
	return p
}

func (p *channelProcess) drain() {
	io.Copy(&p.stderr, p.channel.Stderr())
	close(p.drained)
}

// watch waits for the program's end. Its streams may stay open beyond that, in
// the hands of its children.
func (p *channelProcess) watch(requests <-chan *ssh.Request) {
	known := false
	settle := func(err error) {
		if !known {
			known, p.result = true, err
			close(p.ended)
		}
	}
	for r := range requests {
		if r.WantReply {
			r.Reply(false, nil)
		}
		if err, isEnd := exitOf(r); isEnd {
			settle(err)
		}
	}
	if !known {
		settle(p.vanished())
	}
}

// vanished explains a channel that closed without a word.
func (p *channelProcess) vanished() error {
	select {
	case <-p.host.gone:
		return p.host.lostError()
	case <-time.After(stderrGrace):
		return &LostError{Host: p.host.name, Err: errors.New("the host closed the session without an exit status")}
	}
}

// exitOf reads how a program ended.
func exitOf(r *ssh.Request) (err error, isEnd bool) {
	switch r.Type {
	case "exit-status":
		var m struct{ Status uint32 }
		if err := ssh.Unmarshal(r.Payload, &m); err != nil {
			return fmt.Errorf("exit status: %w", err), true
		}
		if m.Status == 0 {
			return nil, true
		}
		return &ExitError{Status: int(m.Status)}, true
	case "exit-signal":
		var m struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}
		if err := ssh.Unmarshal(r.Payload, &m); err != nil {
			return fmt.Errorf("exit signal: %w", err), true
		}
		return &ExitError{Status: 128 + signalNumbers[m.Signal], Signal: m.Signal}, true
	}
	return nil, false
}

// signalNumbers are those of Linux, by the names that ssh uses.
var signalNumbers = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
}

// exec sends the command for the login shell.
func (p *channelProcess) exec(command string) error {
	payload := ssh.Marshal(struct{ Command string }{command})
	ok, err := p.channel.SendRequest("exec", true, payload)
	if err != nil {
		return p.host.explain(err)
	}
	if !ok {
		p.channel.Close()
		return &startFailure{kind: KindShell, text: "the host refuses to run commands"}
	}
	return nil
}

func (p *channelProcess) wait() error {
	<-p.ended
	select {
	case <-p.drained:
	case <-time.After(stderrGrace):
	}
	return p.result
}

// handOver gives the program to the caller; rest is what was read of its output.
func (p *channelProcess) handOver(rest io.Reader) *Process {
	return &Process{
		Stdin:  &channelInput{channel: p.channel},
		Stdout: rest,
		Wait:   p.wait,
		Stderr: p.stderr.Text,
		Close:  p.close,
	}
}

func (p *channelProcess) close() error {
	if err := p.channel.Close(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil // the host was first
}

// channelInput is a program's standard input; closing it leaves its output open.
type channelInput struct {
	channel ssh.Channel
	once    sync.Once
	err     error
}

func (c *channelInput) Write(p []byte) (int, error) { return c.channel.Write(p) }

func (c *channelInput) Close() error {
	c.once.Do(func() {
		if c.err = c.channel.CloseWrite(); errors.Is(c.err, io.EOF) {
			c.err = nil // the program ended first
		}
	})
	return c.err
}
