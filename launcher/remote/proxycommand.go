package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// commandConn is a connection that a ProxyCommand makes: its standard streams.
type commandConn struct {
	cmd    *exec.Cmd
	in     *os.File // its standard input, our end
	out    *os.File // its standard output, our end
	errors tail
	closed func() error
}

// dialCommand starts a ProxyCommand. It gets a session of its own: a Ctrl-C at
// the terminal must not cut the connection over which the job is stopped.
func dialCommand(command string) (*commandConn, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer theirOut.Close()
	c := &commandConn{cmd: exec.Command("/bin/sh", "-c", "exec "+command), in: in, out: out}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirIn, theirOut, &c.errors
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start the ProxyCommand: %w", err)
	}
	c.closed = sync.OnceValue(c.end)
	return c, nil
}

func (c *commandConn) complaint() string { return c.errors.text() }

func (c *commandConn) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *commandConn) Write(p []byte) (int, error) { return c.in.Write(p) }
func (c *commandConn) Close() error                { return c.closed() }

// end hangs up, and insists after a second.
func (c *commandConn) end() error {
	err := errors.Join(c.in.Close(), c.out.Close())
	group := -c.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGHUP)
	insist := time.AfterFunc(time.Second, func() { syscall.Kill(group, syscall.SIGKILL) })
	c.cmd.Wait()
	insist.Stop()
	return err
}

func (c *commandConn) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (c *commandConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (c *commandConn) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *commandConn) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }
func (c *commandConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 8 << 10

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
