//go:build linux

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/plugins/gpu"
)

// How long a daemon may take: to listen once it was started, and for one answer. An answer takes milliseconds; a first
// client's server is started meanwhile.
const (
	startWait   = 15 * time.Second
	answerWait  = 5 * time.Second
	pollPace    = 20 * time.Millisecond // while it starts
	faultWait   = 10 * time.Second      // for a server to recover from a fault of an earlier attempt
	quitSeconds = 3                     // for the daemon's own patience with its servers
	quitWait    = quitSeconds*time.Second + 3*time.Second
)

const logLines = 12

const outputFile = "daemon.out"

type daemon struct {
	message.MPSDaemon
	pipe, log string // folders
	control   mps.Control
	process   *keeper.Remote // nil: somebody else's
	id        proc.ID        // of its process; zero where that is not known

	mu      sync.Mutex
	servers map[int]proc.ID // that were seen, by pid
	ending  bool            // by muster
	lost    bool            // was reported
	faulty  bool            // its server was seen in fault
	read    int64           // of its server's log
}

func controlOf(reaper *proc.Reaper, program, pipe string) mps.Control {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, cudaPrefix) })
	env = append(env, mps.PipeDirectory+"="+pipe)
	return mps.Control{Ask: func(ctx context.Context, commands ...string) (mps.Answer, error) {
		text, exit, err := reaper.Run(ctx, []string{program}, env, strings.Join(commands, "\n")+"\n")
		return mps.Answer{Text: text, Code: exit.Status()}, err
	}}
}

// cudaPrefix begins CUDA's variables, which would reach the daemon and all of its clients.
const cudaPrefix = "CUDA_"

// quit has a daemon end by its own command, and waits for that.
func quit(c mps.Control) {
	ctx, cancel := context.WithTimeout(context.Background(), quitWait)
	defer cancel()
	_ = c.Quit(ctx, quitSeconds) // what is left then is killed
}

// checkExisting asks a daemon that somebody else runs.
func (d *daemon) checkExisting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	servers, err := d.control.Servers(ctx)
	switch {
	case errors.Is(err, mps.ErrNoDaemon):
		return fmt.Errorf("the daemon that should be in %s does not answer: %w; start it (nvidia-cuda-mps-control -d, "+
			"by this user or root), or leave daemon = \"existing\" out", d.pipe, err)
	case err != nil:
		return fmt.Errorf("the daemon in %s: %w", d.pipe, err)
	}
	d.remember(servers)
	return nil
}

// start makes a daemon's folders, has the keeper start it, and waits until it answers.
func (ds *Daemons) start(d *daemon, program string, number int) error {
	d.pipe = filepath.Join(ds.Place.Sockets, rundir.MPSPipes, strconv.Itoa(number))
	d.log = rundir.MPSLogs(ds.Place.State, d.Device)
	if !mps.Fits(d.pipe) {
		return fmt.Errorf("%s is too long a path for the daemon's sockets: have TMPDIR be a short one", d.pipe)
	}
	_ = os.RemoveAll(d.pipe) // of a daemon that has died in an earlier attempt
	for _, dir := range []string{d.pipe, d.log} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	output, err := os.OpenFile(filepath.Join(d.log, outputFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	if info, err := os.Stat(filepath.Join(d.log, mps.ServerLog)); err == nil {
		d.read = info.Size() // what daemons of earlier attempts have written
	}
	d.control = controlOf(ds.Reaper, program, d.pipe)
	ctx, cancel := context.WithTimeout(ds.ctx, startWait)
	defer cancel()
	// In the foreground, so that the keeper sees its end, and for one device only.
	d.process, err = ds.Supervisor.Daemon(ctx, keeper.Process{
		Path: program, Argv: []string{mps.ControlProgram, "-f"}, DropEnv: cudaPrefix,
		Env: []string{
			mps.PipeDirectory + "=" + d.pipe, mps.LogDirectory + "=" + d.log,
			"CUDA_VISIBLE_DEVICES=" + d.Device, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
			keeper.RunVariable + "=" + ds.Place.Run, // the server inherits it
		},
		OpenFiles: mps.OpenFiles, Quit: mps.QuitCommand(quitSeconds) + "\n",
	}, output)
	if err != nil {
		return err
	}
	if s, err := proc.StatOf(d.process.PID()); err == nil {
		d.id = s.ID
	}
	ds.add(d)
	return d.awaitAnswer(ctx)
}

// poll calls ask until it returns true, or ctx ends.
func poll(ctx context.Context, ask func() bool) {
	ticker := time.NewTicker(pollPace)
	defer ticker.Stop()
	for !ask() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// awaitAnswer asks a daemon that was started until it answers, ends, or takes too long.
func (d *daemon) awaitAnswer(ctx context.Context) error {
	err := errors.New("it was not asked")
	poll(ctx, func() bool {
		var refused *mps.Refused
		if _, err = d.control.Servers(ctx); err == nil || errors.As(err, &refused) {
			return true
		}
		return d.hasEnded()
	})
	switch {
	case err == nil:
		return nil
	case d.hasEnded():
		return fmt.Errorf("the daemon has ended at its start (%s)", d.process.How())
	case ctx.Err() != nil:
		return fmt.Errorf("the daemon has not answered within %v: %w", startWait, err)
	}
	return err
}

// isWell reports whether the daemon of an earlier attempt can serve another. A server in fault recovers once all
// clients that it took along have ended, which they have.
func (d *daemon) isWell(ctx context.Context) (well bool) {
	if d.hasEnded() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, faultWait)
	defer cancel()
	poll(ctx, func() bool {
		servers, err := d.control.Servers(ctx)
		if err != nil {
			return true
		}
		d.remember(servers)
		well = true
		for _, server := range servers {
			state, err := d.control.Status(ctx, server)
			well = well && err == nil && state == mps.Active
		}
		return well
	})
	if well {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lost = false
	}
	return well
}

func (d *daemon) hasEnded() bool {
	if d.process == nil {
		return false
	}
	select {
	case <-d.process.Ended:
		return true
	default:
		return false
	}
}

// remember keeps the identities of servers, so that their end is noticed and they can be killed.
func (d *daemon) remember(servers []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pid := range servers {
		if _, known := d.servers[pid]; known {
			continue
		}
		if s, err := proc.StatOf(pid); err == nil {
			d.servers[pid] = s.ID
		}
	}
}

// ask learns the daemon's servers where none is known yet, and their states where no log reports faults.
func (d *daemon) ask(ctx context.Context) {
	if len(d.knownServers()) > 0 && d.log != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	servers, err := d.control.Servers(ctx)
	if err != nil {
		return // the snapshot of the devices says so
	}
	d.remember(servers)
	for _, server := range servers {
		if state, err := d.control.Status(ctx, server); err == nil && state == mps.Fault {
			d.mu.Lock()
			d.faulty = true
			d.mu.Unlock()
		}
	}
}

type failure struct {
	fault  bool
	text   string
	server int // that is gone; 0: none
}

func (d *daemon) failure() *failure {
	d.mu.Lock()
	ignore, faulty, server := d.ending || d.lost, d.faulty, 0
	for pid, id := range d.servers {
		if !proc.Lives(id) {
			server = pid
		}
	}
	d.mu.Unlock()
	switch {
	case ignore:
		return nil
	case d.hasEnded():
		return &failure{text: fmt.Sprintf("the MPS daemon of %s (pid %d) has ended: %s", d.Name, d.id.PID, d.process.How())}
	case server != 0:
		how := ""
		if exit := mps.Exited(d.readLog(mps.ControlLog), server); exit != "" {
			how = " with " + exit + ", by its daemon's log"
		}
		return &failure{text: fmt.Sprintf("the MPS server of %s (pid %d) has ended%s", d.Name, server, how), server: server}
	case faulty || d.logsFault():
		return &failure{fault: true, text: fmt.Sprintf(
			"the MPS server of %s met a fatal GPU fault of one of its clients, which ends all of them", d.Name)}
	}
	return nil
}

// markLost marks a daemon and the server that is gone as reported; false: it was, or muster ends it.
func (d *daemon) markLost(server int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.lost && !d.ending
	d.lost, d.faulty = true, false
	delete(d.servers, server)
	return first
}

func (d *daemon) readLog(name string) string {
	if d.log == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(d.log, name))
	return string(text)
}

// logsFault reports whether the server's log has a fatal fault since it was last read.
func (d *daemon) logsFault() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if info, err := os.Stat(filepath.Join(d.log, mps.ServerLog)); d.log == "" || err != nil || info.Size() <= d.read {
		return false
	}
	text := d.readLog(mps.ServerLog)
	text = text[min(int(d.read), len(text)):]
	whole := strings.LastIndexByte(text, '\n') + 1 // half a line is read again
	d.read += int64(whole)
	return len(mps.FatalErrors(text[:whole])) > 0
}

// lastLines are the last lines of its logs, after what they say of a fatal error.
func (d *daemon) lastLines() []string {
	if d.log == "" {
		return nil
	}
	var all []string
	for _, name := range []string{mps.ServerLog, mps.ControlLog} {
		text := d.readLog(name)
		fatal := mps.LastLines(strings.Join(mps.FatalErrors(text), "\n"), 2)
		for _, line := range slices.Concat(fatal, mps.LastLines(text, logLines/2)) {
			all = append(all, name+": "+line)
		}
	}
	if len(all) == 0 {
		all = mps.LastLines(d.readLog(outputFile), logLines)
	}
	return all
}

func (d *daemon) clients(ctx context.Context) gpu.MPSClients {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	seen := gpu.MPSClients{Device: d.Device, Clients: map[int]int{}}
	servers, err := d.control.Servers(ctx)
	if err == nil {
		d.remember(servers)
		seen.Servers = servers
	}
	for _, server := range servers {
		clients, asked := d.control.Clients(ctx, server)
		err = errors.Join(err, asked)
		for _, pid := range clients {
			seen.Clients[pid] = gpu.Nobody
		}
	}
	if err != nil {
		seen.Error, seen.Clients = err.Error(), nil
	}
	if len(seen.Servers) == 0 { // they are the run's all the same
		seen.Servers = d.knownServers()
	}
	return seen
}

// end ends a daemon of the run once its clients are gone: by its command, then what is left by identity. It describes
// what cannot be ended.
func (d *daemon) end(run string) (left []string) {
	d.mu.Lock()
	d.ending = true
	d.mu.Unlock()
	if d.process == nil {
		return nil
	}
	if !d.hasEnded() {
		quit(d.control)
		if !d.endsWithin(time.Second) {
			_ = d.process.Kill() // a keeper that is gone has taken it along
			d.endsWithin(time.Second)
		}
	}
	d.mu.Lock()
	known := map[proc.ID]bool{d.id: true}
	for _, id := range d.servers {
		known[id] = true
	}
	d.mu.Unlock()
	for _, s := range killAll(func(s proc.Stat) bool { return known[s.ID] || belongsTo(s, run, d.pipe) }) {
		left = append(left, fmt.Sprintf("%s (pid %d, state %c)", s.Command, s.PID, s.State))
	}
	_ = os.RemoveAll(d.pipe)
	return left
}

func (d *daemon) endsWithin(limit time.Duration) bool {
	select {
	case <-d.process.Ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// killAll kills the processes that match until none is left, and returns those that SIGKILL does not end.
func killAll(match func(proc.Stat) bool) []proc.Stat {
	for deadline := time.Now().Add(proc.KillWait); ; time.Sleep(2 * time.Millisecond) {
		var alive []proc.Stat
		for _, s := range proc.All() {
			if s.State != 'Z' && s.State != 'X' && match(s) {
				alive = append(alive, s)
			}
		}
		if len(alive) == 0 || time.Now().After(deadline) {
			return alive
		}
		for _, s := range alive {
			_ = proc.Signal(s.ID, unix.SIGKILL) // what survives is found in the next round
		}
	}
}

// isMPS reports whether a process is one of MPS's programs: the kernel keeps the beginning of their names.
func isMPS(s proc.Stat) bool {
	return strings.HasPrefix(mps.ControlProgram, s.Command) && len(s.Command) > len("nvidia-cuda-")
}

func belongsTo(s proc.Stat, run, pipe string) bool {
	if !isMPS(s) {
		return false
	}
	itsRun, _ := proc.EnvironOf(s.PID, keeper.RunVariable)
	itsPipe, _ := proc.EnvironOf(s.PID, mps.PipeDirectory)
	return itsRun == run && itsPipe == pipe
}
