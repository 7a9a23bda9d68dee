//go:build linux

package agent

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/devices"
	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/agent/mps"
	"github.com/muster-dev/muster/launcher/agent/oneshot"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/software"
	"github.com/muster-dev/muster/launcher/version"
	"github.com/muster-dev/muster/plugins/external"
	"github.com/muster-dev/muster/plugins/nvidiasmi"
	"github.com/muster-dev/muster/rendezvous/link"
)

// Main runs a subcommand of muster-agent and returns the exit status. prefix are the words that stand before the
// subcommand on this program's own command line: none in muster-agent, "agent" in muster. Users do not type these
// commands.
func Main(prefix, args []string) int {
	tune()
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "muster-agent is started by muster; see muster --help")
		return 64
	}
	program := keeper.Program(prefix)
	run, ok := map[string]func(args []string) error{
		"keeper":  func(args []string) error { return keeperMain(program, args) },
		"worker":  func(args []string) error { return agentMain(program, args) },
		"facts":   func(args []string) error { return factsMain(program, args) },
		"mps":     mpsMain,
		"lookup":  oneshot.Lookup,
		"output":  oneshot.Output,
		"samples": oneshot.Samples,
		"env":     oneshot.Environ,
		"proxy":   oneshot.Proxy,
		devices.SMICommand: func([]string) error {
			external.Serve(nvidiasmi.Source, nvidiasmi.New(&nvidiasmi.Program{}))
			return nil
		},
		"version": func([]string) error { fmt.Println(version.String()); return nil },
	}[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "muster-agent: no command %q\n", args[0])
		return 64
	}
	if err := run(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "muster-agent "+args[0]+":", err)
		return 1
	}
	return 0
}

// tune keeps this process small and out of the workers' way. Both settings are made here and not by variables, which
// workers would inherit.
func tune() {
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	debug.SetGCPercent(50)
	// A launcher or a terminal that is gone must not take this process along. Signals are received and dropped, not
	// ignored: workers would inherit that. The same goes for those that a shell has ignored already: SIGHUP by nohup,
	// SIGINT by a script's "&".
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE, unix.SIGINT)
}

func printLine(v any) error {
	_, err := os.Stdout.Write(append(message.Encode(v), '\n'))
	return err
}

// keeperMain is what muster starts on a host.
func keeperMain(program, args []string) error {
	flags := flag.NewFlagSet("keeper", flag.ContinueOnError)
	c := keeper.Config{Program: program}
	flags.StringVar(&c.Run, "run", "", "id of the run")
	flags.StringVar(&c.Coordinator, "coordinator", "", "muster program to start as coordinator; none: not here")
	flags.DurationVar(&c.Lease, "lease", 30*time.Second, "how long a part of the run may be silent")
	probe := devices.NewFlags(flags)
	first := flags.String("first-port", "0", "for the coordinator")
	last := flags.String("last-port", "0", "for the coordinator")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.AgentArgs, c.CoordinatorArgs = probe.Args(), []string{"-first-port", *first, "-last-port", *last}
	started, err := keeper.Keep(c)
	if !started {
		_ = printLine(message.FromAgent{Error: err.Error()}) // the launcher reads it where it expects the agent's hello
	}
	return err
}

func agentMain(program, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	place := rundir.Place{Program: program}
	flags.StringVar(&place.State, "state", "", "folder of what lasts")
	flags.StringVar(&place.Sockets, "sockets", "", "folder of sockets")
	flags.StringVar(&place.Run, "run", "", "id of the run")
	lease := flags.Duration("lease", 0, "how long a part of the run may be silent")
	probe := devices.NewFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	parent := proc.Parent()
	raiseLimits()
	conn, err := keeper.Open(keeper.FDKeeper)
	if err != nil {
		return err
	}
	for _, fd := range []int{keeper.FDLauncher, keeper.FDHello} {
		unix.CloseOnExec(fd)
	}
	reaper, err := proc.NewReaper()
	if err != nil {
		return err
	}
	identity, err := link.NewIdentity()
	if err != nil {
		return err
	}
	a := &agent{
		place: place, lease: *lease, probe: probe, reaper: reaper, identity: identity,
		launcher: &launcherConn{
			in: os.NewFile(keeper.FDLauncher, "launcher"), out: os.NewFile(keeper.FDHello, "launcher"),
		},
		keeper: &keeperLink{Conn: conn, lease: *lease, id: parent},
		facts:  facts.Gather(""),
	}
	return a.run()
}

// maxFiles is how far the limit of open files is raised: some programs walk through all numbers up to the limit at each
// start of another.
const maxFiles = 1 << 20

// raiseLimits raises the soft limits of locked memory, which InfiniBand takes, and of open files to the hard ones, for
// the workers: what starts this process over SSH often has lower ones than an interactive login. That of the stack is
// left alone: an unlimited one changes how threads get theirs. Facts show what cannot be raised.
func raiseLimits() {
	var memory unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &memory) == nil && memory.Cur != memory.Max {
		memory.Cur = memory.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &memory)
	}
	// By package syscall: it then passes the raised limit on to children, where it otherwise gives them back what this
	// process was started with.
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		files.Cur = max(files.Cur, min(files.Max, maxFiles))
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files)
	}
}

func wallClock() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// factsMain prints the facts of this host, for commands that only look.
func factsMain(program, args []string) error {
	flags := flag.NewFlagSet("facts", flag.ContinueOnError)
	probe := devices.NewFlags(flags)
	withEnviron := flags.Bool("environ", false, "tell the environment that workers would find too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host := probe.Facts(facts.Gather(""), rundir.Place{Program: program}, external.Children{})
	hello := &message.Hello{Version: version.String(), Facts: host}
	env := environ.Host(os.Environ())
	if probe.Program != "" {
		workdir, err := environ.FindWorkdir(probe.Workdir, host.Home)
		if err != nil {
			workdir = host.Home
		}
		found := software.Find("", probe.Program, env, workdir)
		hello.Facts.Software = &found
	}
	if *withEnviron {
		hello.Environment = env
	}
	hello.Clock = wallClock()
	return printLine(message.FromAgent{Hello: hello})
}

// mpsMain prints the processes of MPS on this host, and with -stop ends what earlier runs of this user have left.
func mpsMain(args []string) error {
	flags := flag.NewFlagSet("mps", flag.ContinueOnError)
	stop := flags.Bool("stop", false, "end what is left")
	if err := flags.Parse(args); err != nil {
		return err
	}
	reaper, err := proc.NewReaper()
	if err != nil {
		return err
	}
	return printLine(mps.Processes(reaper, *stop))
}
