package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// keeper owns the processes of a run on this host. It starts the agent and, on the
// head host, the coordinator; workers are the agent's children until it dies.
type keeper struct {
	place
	run     string
	leash   *leash
	reaper  *proc.Reaper
	sockets *rundir.Sockets
	tugs    chan pulled
	pipes   map[string][]heldPipe // of logs that are not complete, by path
	claims  []*os.File            // of devices; the kernel lets them go with this process
	lent    []*os.File            // for the plugin that is started next
	plugins map[int]*proc.Child   // by number
	mps     []servedMPS           // that were started, in any state
	lease   time.Duration
	silent  time.Duration // since the agent was heard, counted in own beats
	stuck   bool          // SIGKILL has not ended it; its workers were ended
	deaf    bool          // the agent's end of the leash is closed
	done    bool          // the agent has said that nothing is left
	agent   *proc.Child
	coord   *proc.Child
	coordUp *os.File      // line to the coordinator
	heard   atomic.Bool   // the coordinator has given a sign of life since the last beat
	quiet   time.Duration // since it has, counted in own beats
}

type heldPipe struct {
	lane ranklog.Lane
	file *os.File
}

type pulled struct {
	tug  tug
	file *os.File
	err  error
}

// keeperMain is what muster starts on a host.
func keeperMain(prefix, args []string) error {
	flags := flag.NewFlagSet("keeper", flag.ContinueOnError)
	run := flags.String("run", "", "id of the run")
	coordinator := flags.String("coordinator", "", "muster program to start as coordinator; none: not here")
	lease := flags.Duration("lease", 30*time.Second, "how long a part of the run may be silent")
	look := lookFlags(flags)
	first := flags.String("first-port", "0", "for the coordinator")
	last := flags.String("last-port", "0", "for the coordinator")
	if err := flags.Parse(args); err != nil {
		return err
	}
	k, err := newKeeper(prefix, *run, *lease, look, *coordinator, "-first-port", *first, "-last-port", *last)
	if err != nil {
		// The launcher reads this where it expects the agent's first words.
		_, _ = os.Stdout.Write(append(message.Encode(message.FromAgent{Error: err.Error()}), '\n'))
		return err
	}
	defer rundir.Remove(k.socketDir)
	return k.keep()
}

func newKeeper(prefix []string, run string, lease time.Duration, look *look, coordinator string, coordinatorArgs ...string) (*keeper, error) {
	// Started by a shell's exec this process may lead its session already.
	if _, err := unix.Setsid(); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("leave the session: %w", err)
	}
	if err := closeInherited(); err != nil {
		return nil, err
	}
	reaper, err := proc.NewReaper()
	if err != nil {
		return nil, err
	}
	k := &keeper{run: run, reaper: reaper, lease: lease, tugs: make(chan pulled), pipes: map[string][]heldPipe{}, plugins: map[int]*proc.Child{}}
	k.prefix = prefix
	host := facts.Identity("")
	// Held until this process ends. Where another keeper of the run has it, this machine is
	// in the job under two names, which the plan is going to refuse in better words.
	if _, err := claimRun(run, host); err != nil && !errors.Is(err, unix.EADDRINUSE) {
		return nil, err
	}
	sweepOrphans(host)
	restoreModes(reaper, func(other string) bool { return other != run && !hasKeeper(other, host) })
	if k.stateDir, err = rundir.MakeState(run, host); err != nil {
		return nil, err
	}
	rundir.SweepSockets()
	if k.sockets, err = rundir.MakeSockets(); err != nil {
		return nil, err
	}
	k.socketDir = k.sockets.Dir
	if err := k.start(look, coordinator, coordinatorArgs); err != nil {
		return nil, err
	}
	return k, nil
}

// start starts the children and gives the standard streams away to the agent.
func (k *keeper) start(look *look, coordinator string, coordinatorArgs []string) error {
	log, err := os.OpenFile(filepath.Join(k.stateDir, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open agent's log: %w", err)
	}
	defer log.Close()
	var agentEnd *os.File
	if k.leash, agentEnd, err = newLeash(); err != nil {
		return err
	}
	defer agentEnd.Close()
	argv := k.self(append([]string{"worker", "-run", k.run, "-state", k.stateDir, "-sockets", k.socketDir, "-lease", k.lease.String()}, look.args()...)...)
	k.agent, err = k.reaper.Start(proc.Spec{
		Path: argv[0], Argv: append([]string{"muster-agent"}, argv[1:]...), Env: os.Environ(), Dir: "/",
		Files: []*os.File{nil, log, log, agentEnd, os.Stdin, os.Stdout},
		Group: true,
	})
	if err != nil {
		return err
	}
	if coordinator != "" {
		if err := k.startCoordinator(coordinator, coordinatorArgs, log); err != nil {
			return err
		}
	}
	return closeStandardStreams(log)
}

func (k *keeper) startCoordinator(program string, args []string, log *os.File) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make line to coordinator: %w", err)
	}
	k.coordUp = os.NewFile(uintptr(fds[0]), "coordinator")
	control := filepath.Join(k.socketDir, rundir.ControlSocket)
	if err := os.WriteFile(filepath.Join(k.stateDir, controlFile), []byte(control), 0o600); err != nil {
		return fmt.Errorf("note the control socket: %w", err)
	}
	end := os.NewFile(uintptr(fds[1]), "coordinator")
	defer end.Close()
	k.coord, err = k.reaper.Start(proc.Spec{
		Path: program, Env: os.Environ(), Dir: "/", Group: true,
		Argv: append([]string{"muster", "coordinator", "-run", k.run, "-state", k.stateDir, "-lease", k.lease.String(),
			"-control", control}, args...),
		Files: []*os.File{nil, log, log, end},
	})
	if err != nil {
		return err
	}
	return k.leash.send(tug{Beside: &k.coord.ID}, nil)
}

// closeInherited closes what whoever started this process had open beside the standard
// streams: a lock or a pipe of theirs must not be held by a run that outlives them, nor
// show up in workers. Descriptors of this process's own are told apart by closing on exec.
func closeInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, entry := range open {
		fd, _ := strconv.Atoi(entry.Name())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// closeStandardStreams puts /dev/null where they were, and for last words the log: whoever
// started this process sees them close when the agent closes its copies.
func closeStandardStreams(log *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd, file := range []*os.File{null, null, log} {
		if err := unix.Dup3(int(file.Fd()), fd, 0); err != nil {
			return fmt.Errorf("close standard streams: %w", err)
		}
	}
	return nil
}

// keep is the keeper's life: it ends when its children have ended.
func (k *keeper) keep() error {
	go k.pull()
	coordEnded := k.watchCoordinator()
	beat := link.HeartbeatOf(k.lease)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case p := <-k.tugs:
			k.take(p)
		case <-k.agent.Done:
			return k.afterAgent(coordEnded)
		case how := <-coordEnded:
			_ = k.leash.send(tug{CoordinatorEnded: how}, nil)
			coordEnded = nil
		case <-ticker.C:
			k.lookAfterAgent(beat)
			k.lookAfterCoordinator(beat)
		}
	}
}

// lookAfterAgent kills an agent that is silent past the lease, and the workers itself where
// that does not end it: the kernel may have it wait for a disk. Silence is counted in own
// beats, so that a machine that slept does not take its sleep for the agent's silence.
func (k *keeper) lookAfterAgent(beat time.Duration) {
	switch k.silent += beat; {
	case k.silent <= k.lease:
		_ = k.leash.send(tug{}, nil) // an agent that is gone shows in its exit
	case k.silent <= k.lease+beat:
		_ = proc.Signal(k.agent.ID, unix.SIGKILL)
	case !k.stuck:
		k.stuck = true
		k.endAll()
	}
}

func (k *keeper) lookAfterCoordinator(beat time.Duration) {
	if k.coord == nil {
		return
	}
	if k.heard.Swap(false) {
		k.quiet = 0
	}
	if k.quiet += beat; k.quiet > k.lease {
		_ = proc.Signal(k.coord.ID, unix.SIGKILL)
	}
}

// pull reads the leash until the agent is gone.
func (k *keeper) pull() {
	for {
		m, file, err := k.leash.receive()
		k.tugs <- pulled{m, file, err}
		if err != nil {
			return
		}
	}
}

func (k *keeper) take(p pulled) {
	k.silent = 0
	switch m := p.tug; {
	case p.err != nil:
		k.deaf = true
	case m.Hold != nil && p.file != nil:
		k.pipes[m.Hold.Path] = append(k.pipes[m.Hold.Path], heldPipe{m.Hold.Lane, p.file})
	case m.Let != "":
		for _, pipe := range k.pipes[m.Let] {
			pipe.file.Close()
		}
		delete(k.pipes, m.Let)
	case m.Keep && p.file != nil:
		k.claims = append(k.claims, p.file)
	case m.Lend != "" && p.file != nil:
		k.lent = append(k.lent, p.file)
	case m.Plugin != nil:
		k.startPlugin(*m.Plugin)
	case m.Kill != 0:
		k.killPlugin(m.Kill)
	case m.Done:
		k.done = true
		_ = k.leash.send(tug{Bye: true}, nil) // an agent that is gone already waits for nothing
	}
}

// watchCoordinator passes the coordinator's first word to the agent and tells how it
// ended; on other hosts it waits for nothing.
func (k *keeper) watchCoordinator() chan string {
	if k.coord == nil {
		return nil
	}
	go k.listenToCoordinator()
	ended := make(chan string, 1)
	go func() {
		<-k.coord.Done
		ended <- "ended: " + k.coord.Exit().String()
	}()
	return ended
}

// listenToCoordinator takes its first word, and then a sign of life now and then.
func (k *keeper) listenToCoordinator() {
	words := bufio.NewReader(k.coordUp)
	line, err := words.ReadBytes('\n')
	var ready message.Ready
	if err == nil && json.Unmarshal(line, &ready) == nil {
		_ = k.leash.send(tug{Ready: &ready}, nil)
	}
	for err == nil {
		k.heard.Store(true)
		_, err = words.ReadByte()
	}
}

// afterAgent ends whatever the agent has left, saves the output that was still in the
// pipes, and waits for the coordinator, which ends by itself once it has told the end.
func (k *keeper) afterAgent(coordEnded chan string) error {
	for !k.deaf { // what the agent had still said
		k.take(<-k.tugs)
	}
	left := k.endAll() // also of an agent that has said its goodbye: a setup may have forked meanwhile
	restoreModes(k.reaper, func(run string) bool { return run == k.run })
	var err error
	if !k.done {
		err = fmt.Errorf("the agent died: %s", k.agent.Exit())
		for _, s := range left {
			err = fmt.Errorf("%w; %s (pid %d, state %c) cannot be ended", err, s.Command, s.PID, s.State)
		}
		k.saveOutput()
	}
	if coordEnded != nil {
		_, _ = k.coordUp.Write([]byte{'.'}) // one without a run has nothing more to wait for
		k.awaitCoordinator(coordEnded)
	}
	return err
}

// endAll ends all processes of the run here but the coordinator and the agent, and returns
// those that SIGKILL does not end.
func (k *keeper) endAll() []proc.Stat {
	spared := func(s proc.Stat) bool { return s.ID == k.agent.ID || k.coord != nil && s.ID == k.coord.ID }
	if len(k.mps) > 0 && !k.done {
		ofMPS := k.ofMPS() // their clients first
		proc.KillBelow(killWait, func(s proc.Stat) bool { return spared(s) || ofMPS(s) })
		k.endMPS()
	}
	return proc.KillBelow(killWait, spared)
}

func (k *keeper) awaitCoordinator(ended chan string) {
	beat := link.HeartbeatOf(k.lease)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
			k.lookAfterCoordinator(beat)
		}
	}
}

// saveOutput moves what is left in the pipes into the logs.
func (k *keeper) saveOutput() {
	var all sync.WaitGroup
	for path, pipes := range k.pipes {
		log, err := ranklog.Resume(path)
		if err != nil {
			continue // the folder is gone; there is nowhere to put it
		}
		var pumps sync.WaitGroup
		for _, pipe := range pipes {
			pumps.Go(func() { _ = log.Pump(pipe.file, pipe.lane) })
			time.AfterFunc(openAfterDeath, func() { pipe.file.Close() })
		}
		all.Go(func() { pumps.Wait(); log.Close() })
	}
	all.Wait()
}

func dialUnix(path string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}
