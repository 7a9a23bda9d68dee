//go:build linux

package testbed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file and mounts.go run inside a host, as its process 1.

// initVariable in the environment makes this program a host's init.
const initVariable = "MUSTER_TESTBED_INIT"

// bootOK is what an init reports when its sshd listens.
const bootOK = "ok"

// rootPath is the PATH that sshd gives root.
const rootPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// init turns the program into a host's init, where the environment asks for that.
func init() {
	if os.Getenv(initVariable) == "" || os.Getpid() != 1 {
		return
	}
	os.Unsetenv(initVariable)
	runInit()
}

// runInit boots the host and reaps processes until the testbed goes away.
func runInit() {
	// Handlers for everything: process 1 must not die of a stray signal, and must
	// not hand down ignored ones to its children.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	unix.Umask(0o022)
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	orders := bufio.NewReader(os.NewFile(3, "orders"))
	report := os.NewFile(4, "report")
	if err := obey(orders); err != nil {
		io.WriteString(report, err.Error())
		os.Exit(1)
	}
	io.WriteString(report, bootOK)
	report.Close()
	go func() {
		io.Copy(io.Discard, orders)
		os.Exit(0) // the testbed is gone; the kernel kills the rest of the host
	}()
	for range signals {
		for reap() {
		}
	}
}

// obey reads the boot order and carries it out.
func obey(orders *bufio.Reader) error {
	line, err := orders.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the boot order: %w", err)
	}
	var o bootOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("boot order: %w", err)
	}
	if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mountAll(o); err != nil {
		return err
	}
	if err := ipBatch(o.Links...); err != nil {
		return err
	}
	if err := shiftClocks(o.Clock); err != nil {
		return fmt.Errorf("shift the clocks: %w", err)
	}
	return startSSHD(o.SSHPid)
}

// shiftClocks puts the children of the init, but not itself, into another time
// namespace. It has an effect on the main thread only, where init functions run.
func shiftClocks(by time.Duration) error {
	if by == 0 {
		return nil
	}
	runtime.LockOSThread() // new threads are not to be made from this one
	if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
		return err
	}
	seconds, nanoseconds := by/time.Second, by%time.Second
	if nanoseconds < 0 {
		seconds, nanoseconds = seconds-1, nanoseconds+time.Second
	}
	offsets := fmt.Sprintf("monotonic %d %d\nboottime %[1]d %[2]d\n", seconds, nanoseconds)
	return os.WriteFile("/proc/self/timens_offsets", []byte(offsets), 0o644)
}

// startSSHD starts sshd and waits until it listens: only then it writes its pid.
func startSSHD(pidFile string) error {
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		return err
	}
	cmd := exec.Command(tool("sshd"), "-D", "-e")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + rootPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(bootTime)
	for time.Now().Before(deadline) {
		if text, err := os.ReadFile(pidFile); err == nil && len(text) > 0 {
			return nil
		}
		var status unix.WaitStatus
		if pid, _ := unix.Wait4(cmd.Process.Pid, &status, unix.WNOHANG, nil); pid == cmd.Process.Pid {
			return fmt.Errorf("sshd ended with status %d", status.ExitStatus())
		}
		time.Sleep(2 * time.Millisecond)
	}
	return errors.New("sshd does not listen")
}

// reap collects one dead child, sshd or an orphan of the host, if there is one.
func reap() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	return err == nil && pid > 0
}
