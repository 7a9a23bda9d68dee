package agent

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

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

// Main runs a subcommand of muster-agent and returns the exit status. prefix are the
// words that stand before the subcommand on this program's own command line: none in
// muster-agent, "agent" in muster. Users do not type these commands.
func Main(prefix, args []string) int {
	lean()
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "muster-agent is started by muster; see muster --help")
		return 64
	}
	run, ok := map[string]func(prefix, args []string) error{
		"keeper":  keeperMain,
		"worker":  agentMain,
		"facts":   factsMain,
		"lookup":  func(_, args []string) error { return oneshot.Lookup(args) },
		"mps":     mpsMain,
		"output":  func(_, args []string) error { return oneshot.Output(args) },
		"samples": func(_, args []string) error { return oneshot.Samples(args) },
		"env":     func(_, args []string) error { return oneshot.Environ(args) },
		"proxy":   func(_, args []string) error { return oneshot.Proxy(args) },
		smiCommand: func(_, _ []string) error {
			external.Serve(nvidiasmi.Source, nvidiasmi.New(&nvidiasmi.Program{}))
			return nil
		},
		"version": func(_, _ []string) error { fmt.Println(version.String()); return nil },
	}[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "muster-agent: no command %q\n", args[0])
		return 64
	}
	if err := run(prefix, args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "muster-agent "+args[0]+":", err)
		return 1
	}
	return 0
}

// lean keeps this process small and out of the workers' way. Both are set here and
// not by variables, which workers would inherit.
func lean() {
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	debug.SetGCPercent(50)
	// A launcher or a terminal that has gone must not take this process along. Signals
	// are taken and thrown away, not ignored: workers would inherit that. The same goes for
	// those that a shell has had ignored already: SIGHUP by nohup, SIGINT by a script's "&".
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE, unix.SIGINT)
}

// keeperMain is what muster starts on a host.
func keeperMain(prefix, args []string) error {
	flags := flag.NewFlagSet("keeper", flag.ContinueOnError)
	c := keeper.Config{Program: keeper.Program(prefix)}
	flags.StringVar(&c.Run, "run", "", "id of the run")
	flags.StringVar(&c.Coordinator, "coordinator", "", "muster program to start as coordinator; none: not here")
	flags.DurationVar(&c.Lease, "lease", 30*time.Second, "how long a part of the run may be silent")
	look := lookFlags(flags)
	first := flags.String("first-port", "0", "for the coordinator")
	last := flags.String("last-port", "0", "for the coordinator")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.AgentArgs, c.CoordinatorArgs = look.args(), []string{"-first-port", *first, "-last-port", *last}
	started, err := keeper.Keep(c)
	if !started {
		// The launcher reads this where it expects the agent's hello.
		_, _ = os.Stdout.Write(append(message.Encode(message.FromAgent{Error: err.Error()}), '\n'))
	}
	return err
}

// agentMain is the agent: the child of a keeper.
func agentMain(prefix, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	stateDir := flags.String("state", "", "folder of what lasts")
	socketDir := flags.String("sockets", "", "folder of sockets")
	lease := flags.Duration("lease", 0, "how long a part of the run may be silent")
	run := flags.String("run", "", "id of the run")
	look := lookFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
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
		place:    rundir.Place{Run: *run, State: *stateDir, Sockets: *socketDir, Program: keeper.Program(prefix)},
		look:     look,
		lease:    *lease,
		keeper:   conn,
		keeperID: proc.Parent(),
		reaper:   reaper,
		words:    &words{in: os.NewFile(keeper.FDLauncher, "launcher"), out: os.NewFile(keeper.FDHello, "launcher")},
		facts:    facts.Gather(""),
		identity: identity,
	}
	return a.run()
}

// factsMain prints the facts of this host, for commands that only look.
func factsMain(prefix, args []string) error {
	flags := flag.NewFlagSet("facts", flag.ContinueOnError)
	look := lookFlags(flags)
	withEnviron := flags.Bool("environ", false, "tell the environment that workers would find too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host := look.facts(facts.Gather(""), rundir.Place{Program: keeper.Program(prefix)}, external.Children{})
	hello := &message.Hello{Version: version.String(), Facts: host}
	env := environ.Host(os.Environ())
	if look.program != "" {
		workdir, err := findWorkdir(look.workdir, host.Home)
		if err != nil {
			workdir = host.Home
		}
		found := software.Find("", look.program, env, workdir)
		hello.Facts.Software = &found
	}
	if *withEnviron {
		hello.Environment = env
	}
	hello.Clock = clock()
	_, err := os.Stdout.Write(append(message.Encode(message.FromAgent{Hello: hello}), '\n'))
	return err
}

// mpsMain prints the processes of MPS on this host, and with -stop ends what earlier runs of this user have left.
func mpsMain(_, args []string) error {
	flags := flag.NewFlagSet("mps", flag.ContinueOnError)
	stop := flags.Bool("stop", false, "end what is left")
	if err := flags.Parse(args); err != nil {
		return err
	}
	reaper, err := proc.NewReaper()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(message.Encode(mps.Processes(reaper, *stop)), '\n'))
	return err
}
