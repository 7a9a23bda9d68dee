//go:build linux

package mps

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// Files of a pipe folder.
const (
	clientSocket  = "control"
	commandSocket = "control_privileged"
	logSocket     = "log"
	pidFile       = controlName + ".pid"
)

// Control is nvidia-cuda-mps-control on the machine in a folder. It returns the exit status.
func Control(folder string, args []string, in io.Reader, out, errs io.Writer) int {
	functions := []string{gpus.MPSControl}
	for _, arg := range args {
		functions = append(functions, gpus.MPSControl+" "+arg)
	}
	if f := strike(folder, functions...); f != nil {
		fmt.Fprintln(errs, f.Says)
		return cmp.Or(f.Error, 1)
	}
	multi := slices.Contains(args, "-multiuser-server")
	switch args := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-multiuser-server" }); {
	case len(args) == 0 && !multi:
		return frontEnd(pipeFolder(), in, out)
	case len(args) == 1 && args[0] == "-d" && os.Getenv(readyVariable) == "":
		return background(errs)
	case len(args) == 1 && (args[0] == "-d" || args[0] == "-f"):
		return serve(folder, args[0] == "-f", multi, out, errs)
	}
	fmt.Fprintf(errs, "Usage: %s [-d | -f] [-multiuser-server]\n", controlName)
	return 1
}

// readyVariable names the file that a daemon in the background says by that it listens.
const readyVariable = "TESTBED_MPS_READY"

// background starts the same program in a session of its own and returns when it listens,
// or did not start: nothing but its words comes back then.
func background(errs io.Writer) int {
	read, write, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	defer read.Close()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	cmd := exec.Command(self)
	cmd.Args, cmd.Env = os.Args, append(os.Environ(), readyVariable+"=3")
	cmd.ExtraFiles, cmd.Dir = []*os.File{write}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	write.Close()
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	said, _ := io.ReadAll(read) // ends with the daemon, too
	words, ready := strings.CutSuffix(string(said), "ready\n")
	fmt.Fprint(errs, words)
	if !ready {
		_ = cmd.Wait() // its status is told by ours
		return 1
	}
	return 0
}

// serve is the daemon, which ends by a command only.
func serve(folder string, foreground, multi bool, out, errs io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // who reads along in the foreground may go
	ready := func() {}
	if !foreground {
		pipe := os.NewFile(3, "ready")
		syscall.CloseOnExec(3)
		if err := os.Unsetenv(readyVariable); err != nil {
			return 1
		}
		errs, ready = pipe, func() { fmt.Fprintln(pipe, "ready"); pipe.Close() }
	}
	if multi && os.Getuid() != 0 {
		fmt.Fprintf(errs, insufficient+"\n", os.Getuid(), "start a multi-user server")
		return 1
	}
	log, warning := openLog("control.log")
	if warning != "" {
		fmt.Fprintln(errs, warning)
	}
	if foreground {
		log.to = io.MultiWriter(log.to, out)
	}
	d := &daemon{folder: folder, pipes: pipeFolder(), multi: multi, log: log, defaults: fromEnvironment(), servers: map[int]*served{}}
	if d.defaults.Percentage == 0 {
		d.defaults.Percentage = 100
	}
	if err := d.listen(); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	d.log.line("Control", "Starting control daemon using socket %s", filepath.Join(d.pipes, clientSocket))
	d.log.line("Control", "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", d.pipes)
	ready()
	d.run()
	return 0
}

// listen takes possession of the pipe folder.
func (d *daemon) listen() error {
	if d.pipes == defaultPipes {
		_ = os.Mkdir(d.pipes, 0o755) // there, or not to be had: what follows tells
	}
	if syscall.Access(d.pipes, 2|1) != nil { // W_OK, X_OK
		return fmt.Errorf(cannotAccess, d.pipes)
	}
	unlock, err := lockFolder(d.pipes)
	if err != nil {
		return fmt.Errorf(cannotAccess, d.pipes)
	}
	defer unlock()
	if pid, err := recorded(d.pipes); err == nil && exists(pid) {
		return errors.New(alreadyRunning)
	}
	for _, s := range []struct {
		name string
		into **net.UnixListener
	}{{clientSocket, &d.clients}, {commandSocket, &d.commands}, {logSocket, &d.logs}} {
		path := filepath.Join(d.pipes, s.name)
		_ = os.Remove(path) // a dead daemon's
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil { // too long a path, too
			return fmt.Errorf(cannotAccess, d.pipes)
		}
		listener.SetUnlinkOnClose(false)
		if err := os.Chmod(path, 0o666); err != nil { // who may connect, credentials decide
			return err
		}
		*s.into = listener
	}
	return os.WriteFile(filepath.Join(d.pipes, pidFile), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644)
}

// lockFolder keeps two daemons from starting in one folder at a time.
func lockFolder(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// recorded is the process of the folder's daemon, dead or alive.
func recorded(pipes string) (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(pipes, pidFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// exists tells whether there is a process of this number, whatever it is.
func exists(pid int) bool {
	_, err := gpus.StartTime(pid)
	return err == nil
}

// reply is what the daemon answers to a command.
type reply struct {
	Text    string `json:"text"`
	Status  int    `json:"status"` // that the front end ends with
	Refused bool   `json:"refused,omitempty"`
}

// frontEnd passes commands on, line by line, and prints the answers. Its status is 0 where
// there is a daemon that it can talk to, whatever that answers.
func frontEnd(pipes string, in io.Reader, out io.Writer) int {
	conn, words := dial(pipes)
	if conn == nil {
		fmt.Fprintln(out, words)
		return 1
	}
	defer conn.Close()
	answers, status := json.NewDecoder(conn), 0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r reply
		_, err := fmt.Fprintln(conn, lines.Text())
		if err == nil {
			err = answers.Decode(&r)
		}
		if err != nil || r.Refused {
			fmt.Fprintln(out, notAllowed)
			return 1
		}
		fmt.Fprint(out, r.Text)
		status = max(status, r.Status)
	}
	return status
}

func dial(pipes string) (conn net.Conn, words string) {
	pid, err := recorded(pipes)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, notAllowed
	case err != nil || !exists(pid):
		return nil, noDaemon
	}
	conn, err = net.Dial("unix", filepath.Join(pipes, commandSocket))
	if err != nil {
		return nil, notAllowed
	}
	return conn, ""
}
