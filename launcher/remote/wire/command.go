package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Command is a connection that a ProxyCommand makes: its standard streams.
type Command struct {
	cmd    *exec.Cmd
	in     *os.File // its standard input, our end
	out    *os.File // its standard output, our end
	errors Tail
	closed func() error
}

// DialCommand starts a ProxyCommand. It gets a session of its own: a Ctrl-C at
// the terminal must not cut the connection over which the job is stopped.
func DialCommand(command string) (*Command, error) {
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
	c := &Command{cmd: exec.Command("/bin/sh", "-c", "exec "+command), in: in, out: out}
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

// Complaint is what the command said on its standard error.
func (c *Command) Complaint() string { return c.errors.Text() }

func (c *Command) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *Command) Write(p []byte) (int, error) { return c.in.Write(p) }
func (c *Command) Close() error                { return c.closed() }

// end hangs up, and insists after a second.
func (c *Command) end() error {
	err := errors.Join(c.in.Close(), c.out.Close())
	group := -c.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGHUP)
	insist := time.AfterFunc(time.Second, func() { syscall.Kill(group, syscall.SIGKILL) })
	c.cmd.Wait()
	insist.Stop()
	return err
}

func (c *Command) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (c *Command) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (c *Command) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *Command) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }
func (c *Command) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
