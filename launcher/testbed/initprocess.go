//go:build linux

package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errSilent says that an init ended without a word of what was wrong.
var errSilent = errors.New("its init ended")

// killTime bounds the wait for the end of all processes of a killed host.
const killTime = 20 * time.Second

// hostNamespaces are those a host has for itself.
const hostNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID

// initProcess is the machine's side of a host's init.
type initProcess struct {
	cmd *exec.Cmd
	// orders carries the boot order. The init ends when the other end is closed,
	// which the kernel does if this process is killed.
	orders *os.File
	// report carries "ok" or what went wrong, up to its end.
	report *os.File
	gone   chan struct{}
}

// startInit starts the init of h, which then waits for its order.
func startInit(t *thread, h *Host) (*initProcess, error) {
	log, err := os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ordersIn, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersIn.Close()
	report, reportOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reportOut.Close()
	p := &initProcess{orders: orders, report: report, gone: make(chan struct{})}
	p.cmd = initCommand(h.Name, log, ordersIn, reportOut)
	// On the bed's thread, which outlives the host: the parent-death signal comes
	// with the end of the thread that started the child.
	if err := t.do(p.cmd.Start); err != nil {
		orders.Close()
		report.Close()
		return nil, err
	}
	go func() {
		defer close(p.gone)
		p.cmd.Wait()
	}()
	return p, nil
}

func initCommand(name string, log, orders, report *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{"testbed-init", name},
		Env:        []string{initVariable + "=1", "GOMAXPROCS=1", "PATH=" + rootPath},
		Dir:        "/",
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: []*os.File{orders, report}, // descriptors 3 and 4
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: hostNamespaces,
			Pdeathsig:  syscall.SIGKILL,
			Setsid:     true,
		},
	}
}

func (p *initProcess) pid() int { return p.cmd.Process.Pid }

// boot sends the order and waits until the init has carried it out.
func (p *initProcess) boot(ctx context.Context, order bootOrder) error {
	defer p.report.Close()
	stop := context.AfterFunc(ctx, func() { p.report.SetReadDeadline(time.Now()) })
	defer stop()
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := p.orders.Write(append(text, '\n')); err != nil {
		return errSilent
	}
	answer, err := io.ReadAll(p.report)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case len(answer) == 0:
		return errSilent
	case string(answer) != bootOK:
		return errors.New(string(answer))
	}
	return nil
}

// kill ends the init and with it, by the kernel, all processes of the host.
func (p *initProcess) kill() error {
	p.cmd.Process.Kill() // fails where it is gone already
	defer p.orders.Close()
	defer p.report.Close()
	select {
	case <-p.gone:
		return nil
	case <-time.After(killTime):
		return fmt.Errorf("init %d is still there %v after SIGKILL", p.pid(), killTime)
	}
}
