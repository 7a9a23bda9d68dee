//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// openAfterDeath is how long output may stay open after the last known process of a rank is gone.
const openAfterDeath = 2 * time.Second

// Descriptors that the keeper gives its children.
const (
	FDKeeper   = 3 // agent: connection to the keeper; coordinator: its line to the keeper
	FDLauncher = 4 // agent: what the launcher says
	FDHello    = 5 // agent: what the launcher is told
)

// Config is what a keeper is started with.
type Config struct {
	Run             string
	Lease           time.Duration // how long a part of the run may be silent
	Program         []string      // starts this program, before the subcommand
	AgentArgs       []string      // of the agent, beside the keeper's own
	Coordinator     string        // program to start as coordinator; "": not on this host
	CoordinatorArgs []string
}

// keeper starts the agent and, on the head host, the coordinator; workers are the agent's children until it dies.
type keeper struct {
	Config
	state       string
	sockets     *rundir.Sockets
	conn        *Conn
	reaper      *proc.Reaper
	received    chan received
	pipes       map[string][]pipe // of logs that are not complete, by path
	claims      []*os.File        // of devices; the kernel releases them with this process
	processes   processes
	agent       *proc.Child
	silent      time.Duration // since the agent was heard from, counted in own heartbeats
	stuck       bool          // SIGKILL has not ended the agent; its workers were ended
	agentGone   bool          // the agent's end of the connection is closed
	done        bool          // the agent has said that nothing is left
	coordinator *coordinator
}

type pipe struct {
	lane ranklog.Lane
	file *os.File
}

type received struct {
	message Message
	files   []*os.File
	err     error
}

// Program is the command line that starts this program, also after its file was replaced or removed. prefix are the
// words before its subcommand.
func Program(prefix []string) []string {
	return append([]string{fmt.Sprintf("/proc/%d/exe", os.Getpid())}, prefix...)
}

// Keep starts the children and returns when they have ended. started is false if they could not be started.
func Keep(c Config) (started bool, err error) {
	k, err := newKeeper(c)
	if err != nil {
		return false, err
	}
	defer rundir.Remove(k.sockets.Dir)
	return true, k.keep()
}

func newKeeper(c Config) (*keeper, error) {
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
	k := &keeper{Config: c, reaper: reaper, received: make(chan received), pipes: map[string][]pipe{}}
	host := facts.Identity("")
	// Held until this process ends. Where another keeper of the run has it, this machine is in the job under two names,
	// which the plan refuses with a better message.
	if _, err := lockRun(c.Run, host); err != nil && !errors.Is(err, unix.EADDRINUSE) {
		return nil, err
	}
	sweepOrphans(host)
	if k.state, err = rundir.MakeState(c.Run, host); err != nil {
		return nil, err
	}
	rundir.SweepSockets()
	if k.sockets, err = rundir.MakeSockets(); err != nil {
		return nil, err
	}
	if err := k.start(); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *keeper) start() error {
	log, err := os.OpenFile(filepath.Join(k.state, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open agent's log: %w", err)
	}
	defer log.Close()
	var agentEnd *os.File
	if k.conn, agentEnd, err = newConn(); err != nil {
		return err
	}
	defer agentEnd.Close()
	k.processes = processes{conn: k.conn, reaper: k.reaper, all: map[int]*running{}}
	argv := slices.Concat([]string{"muster-agent"}, k.Program[1:], []string{
		"worker", "-run", k.Run, "-state", k.state, "-sockets", k.sockets.Dir, "-lease", k.Lease.String(),
	}, k.AgentArgs)
	k.agent, err = k.reaper.Start(proc.Spec{
		Path: k.Program[0], Argv: argv, Env: os.Environ(), Dir: "/",
		Files: []*os.File{nil, log, log, agentEnd, os.Stdin, os.Stdout},
		Group: true,
	})
	if err != nil {
		return err
	}
	if k.Coordinator != "" {
		if err := k.startCoordinator(log); err != nil {
			return err
		}
	}
	return closeStandardStreams(log)
}

// closeInherited closes what whoever started this process had open beside the standard streams: a lock or a pipe of
// theirs must not be held by a run that outlives them, nor show up in workers. Descriptors of this process's own are
// told apart by closing on exec.
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

// closeStandardStreams puts /dev/null in their place, and the log for a last message: whoever started this process sees
// them close when the agent closes its copies.
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

func (k *keeper) keep() error {
	go k.receive()
	var ended chan string // of the coordinator
	if k.coordinator != nil {
		ended = k.coordinator.ended
		k.coordinator.watch(k.conn)
	}
	beat := link.HeartbeatOf(k.Lease)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case r := <-k.received:
			k.handle(r)
		case <-k.agent.Done:
			return k.afterAgent(ended != nil)
		case how := <-ended:
			_ = k.conn.Send(Message{CoordinatorEnded: how})
			ended = nil
		case <-ticker.C:
			k.watchAgent(beat)
			if k.coordinator != nil {
				k.coordinator.beat(beat)
			}
		}
	}
}

// watchAgent kills an agent that is silent past the lease, and the workers itself where that does not end it: the
// kernel may have it wait for a disk. Silence is counted in own heartbeats: after a suspend, our own sleep must not
// look like a silent agent.
func (k *keeper) watchAgent(beat time.Duration) {
	switch k.silent += beat; {
	case k.silent <= k.Lease:
		_ = k.conn.Send(Message{}) // an agent that is gone shows in its exit
	case k.silent <= k.Lease+beat:
		_ = proc.Signal(k.agent.ID, unix.SIGKILL)
	case !k.stuck:
		k.stuck = true
		k.endAll()
	}
}

func (k *keeper) receive() {
	for {
		m, files, err := k.conn.Receive()
		k.received <- received{m, files, err}
		if err != nil {
			return
		}
	}
}

func (k *keeper) handle(r received) {
	k.silent = 0
	switch m := r.message; {
	case r.err != nil:
		k.agentGone = true
	case m.Output != nil && len(r.files) > 0:
		k.pipes[m.Output.Path] = append(k.pipes[m.Output.Path], pipe{m.Output.Lane, r.files[0]})
	case m.ReleaseLog != "":
		for _, pipe := range k.pipes[m.ReleaseLog] {
			pipe.file.Close()
		}
		delete(k.pipes, m.ReleaseLog)
	case m.KeepOpen:
		k.claims = append(k.claims, r.files...)
	case m.Start != nil:
		k.processes.start(*m.Start, r.files)
	case m.Kill != 0:
		k.processes.kill(m.Kill)
	case m.Done:
		k.done = true
		_ = k.conn.Send(Message{DoneAck: true}) // an agent that is gone already waits for nothing
	}
}

// afterAgent ends whatever the agent has left, saves the output that was still in the pipes, and waits for the
// coordinator.
func (k *keeper) afterAgent(coordinated bool) error {
	for !k.agentGone { // what the agent had sent before
		k.handle(<-k.received)
	}
	left := k.endAll() // also of an agent that has said that it is done: a setup may have forked meanwhile
	var err error
	if !k.done {
		err = fmt.Errorf("the agent died: %s", k.agent.Exit())
		for _, s := range left {
			err = fmt.Errorf("%w; %s (pid %d, state %c) cannot be ended", err, s.Command, s.PID, s.State)
		}
		k.saveOutput()
	}
	if coordinated {
		k.coordinator.release()
	}
	return err
}

// endAll ends all processes of the run here but the coordinator and the agent, and returns those that SIGKILL does not
// end.
func (k *keeper) endAll() []proc.Stat {
	spared := func(s proc.Stat) bool {
		return s.ID == k.agent.ID || k.coordinator != nil && s.ID == k.coordinator.child.ID
	}
	if quitters, serves := k.processes.quitters(); len(quitters) > 0 && !k.done {
		proc.KillBelow(proc.KillWait, func(s proc.Stat) bool { return spared(s) || serves(s) })
		k.processes.quit(quitters)
	}
	return proc.KillBelow(proc.KillWait, spared)
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
