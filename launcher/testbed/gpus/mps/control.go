//go:build linux

package mps

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
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
	if words := d.listen(); words != "" {
		fmt.Fprintln(errs, words)
		return 1
	}
	d.log.line("Control", "Starting control daemon using socket %s", filepath.Join(d.pipes, clientSocket))
	d.log.line("Control", "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", d.pipes)
	ready()
	d.run()
	return 0
}
