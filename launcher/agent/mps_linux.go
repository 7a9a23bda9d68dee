package agent

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
)

// How long a daemon may take: to listen once it was started, and for one answer. An answer
// takes milliseconds; a first client's server is started meanwhile.
const (
	mpsStartWait  = 15 * time.Second
	mpsAnswerWait = 5 * time.Second
	mpsAskPace    = 20 * time.Millisecond // while it starts
	mpsFaultWait  = 10 * time.Second      // for a server to recover from a fault of an earlier attempt
)

// logLines is how many lines of a daemon's logs go along with the news of its end.
const logLines = 12

// mpsHost are the daemons of MPS that serve the run on this host. What runs beside the
// agent's loop asks and changes them under the lock.
type mpsHost struct {
	turn   sync.Mutex // held by a Serve: two would start two daemons for one device
	mu     sync.Mutex
	all    []*mpsDaemon
	closed bool // no more are started
	// serving are those that are being started, until cancel ends them.
	serving sync.WaitGroup
	cancel  []context.CancelFunc
	stop    context.CancelFunc // of the watch; nil: nobody watches
}

// mpsDaemon is one of them.
type mpsDaemon struct {
	message.MPSDaemon
	pipe, log string
	control   mps.Control
	process   *keeper.Remote // nil: it was there already
	id        proc.ID        // of its process; zero where that is not known

	mu      sync.Mutex
	servers map[int]proc.ID // that were seen, by pid
	ending  bool            // by muster
	lost    bool            // was told
	faulty  bool            // its server was seen in fault
	read    int64           // of its server's log
}

// endingWords are why no daemon is started any more.
const endingWords = "the run is ending"

// serve carries out a Serve. It runs beside the agent's loop.
func (a *agent) serve(o *message.Serve) *message.Served {
	news := &message.Served{Number: o.Number, Folders: map[string]message.MPSFolders{}}
	ctx, done, ok := a.mps.begin()
	if !ok {
		news.Error = endingWords
		return news
	}
	defer done()
	a.mps.turn.Lock()
	defer a.mps.turn.Unlock()
	if ctx.Err() != nil {
		news.Error = endingWords
		return news
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, wanted := range o.Daemons {
		all.Go(func() {
			d, err := a.daemonFor(ctx, o, i, wanted)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && news.Error == "" {
				news.Error, news.Log = fmt.Sprintf("MPS for %s: %v", wanted.Name, err), d.log
				news.Tail = []byte(strings.Join(d.lines(), "\n"))
			}
			news.Folders[wanted.Device] = message.MPSFolders{Pipe: d.pipe, Log: d.log, PID: d.id.PID}
		})
	}
	all.Wait()
	return news
}

// daemonFor has a daemon for a device: the one of the attempt before if it is well, else a
// new one. The daemon is never nil.
func (a *agent) daemonFor(ctx context.Context, o *message.Serve, number int, wanted message.MPSDaemon) (*mpsDaemon, error) {
	if d := a.mps.of(wanted.Device); d != nil {
		if d.isWell(ctx) {
			return d, nil
		}
		a.mps.remove(d)
		d.end(a.reaper, a.place.run)
	}
	d := &mpsDaemon{MPSDaemon: wanted, servers: map[int]proc.ID{}, pipe: wanted.Existing}
	if wanted.Existing != "" {
		d.control = control(a.reaper, o.Program, d.pipe)
		if err := d.isThere(ctx); err != nil {
			return d, err
		}
		a.mps.add(d)
		return d, nil
	}
	if err := a.startDaemon(ctx, d, o.Program, number); err != nil {
		return d, err
	}
	return d, d.control.SetShares(ctx, 0, wanted.Threads, wanted.Memory)
}

// isThere asks a daemon that somebody else runs.
func (d *mpsDaemon) isThere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mpsAnswerWait)
	defer cancel()
	servers, err := d.control.Servers(ctx)
	switch {
	case errors.Is(err, mps.ErrNoDaemon):
		return fmt.Errorf("the daemon that should be in %s does not answer: %w; start it (nvidia-cuda-mps-control -d, by this user or root), or leave daemon = \"existing\" out", d.pipe, err)
	case err != nil:
		return fmt.Errorf("the daemon in %s: %w", d.pipe, err)
	}
	d.see(servers)
	return nil
}

// startDaemon makes a daemon's folders, has the keeper start it, and waits until it answers.
func (a *agent) startDaemon(ctx context.Context, d *mpsDaemon, program string, number int) error {
	d.pipe = filepath.Join(a.socketDir, rundir.MPSPipes, strconv.Itoa(number))
	d.log = rundir.MPSLogs(a.stateDir, d.Device)
	if !mps.Fits(d.pipe) {
		return fmt.Errorf("%s is too long a path for the daemon's sockets: have TMPDIR be a short one", d.pipe)
	}
	_ = os.RemoveAll(d.pipe) // of a daemon that has died in an earlier attempt
	for _, dir := range []string{d.pipe, d.log} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	output, err := os.OpenFile(filepath.Join(d.log, "daemon.out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	d.skipLog() // what daemons of attempts before have said
	d.control = control(a.reaper, program, d.pipe)
	ctx, cancel := context.WithTimeout(ctx, mpsStartWait)
	defer cancel()
	// In the foreground, so that the keeper sees its end, and for one device only.
	d.process, err = a.plugins.Daemon(ctx, keeper.Process{
		Path: program, Argv: []string{mps.ControlProgram, "-f"}, DropEnv: cudaVariables,
		Env: []string{
			mps.PipeDirectory + "=" + d.pipe, mps.LogDirectory + "=" + d.log,
			"CUDA_VISIBLE_DEVICES=" + d.Device, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
			keeper.RunVariable + "=" + a.place.run, // the server has it too
		},
		OpenFiles: mps.OpenFiles, Quit: mps.QuitCommand(quitSeconds) + "\n",
	}, output)
	if err != nil {
		return err
	}
	if s, err := proc.StatOf(d.process.PID()); err == nil {
		d.id = s.ID
	}
	a.mps.add(d)
	return d.awaitAnswer(ctx)
}

// awaitAnswer asks a daemon that was started until it answers, ends, or takes too long.
func (d *mpsDaemon) awaitAnswer(ctx context.Context) error {
	ticker := time.NewTicker(mpsAskPace)
	defer ticker.Stop()
	var last error
	for {
		if _, last = d.control.Servers(ctx); last == nil {
			return nil
		}
		var refused *mps.Refused
		if errors.As(last, &refused) {
			return last
		}
		select {
		case <-ticker.C:
		case <-d.process.Ended:
			return fmt.Errorf("the daemon has ended at its start (%s)", d.process.How())
		case <-ctx.Done():
			return fmt.Errorf("the daemon has not answered within %v: %w", mpsStartWait, last)
		}
	}
}

// isWell reports whether a daemon of an attempt before can serve another. A server that is in
// fault recovers once all that it took along have ended, which they have.
func (d *mpsDaemon) isWell(ctx context.Context) bool {
	if d.hasEnded() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, mpsFaultWait)
	defer cancel()
	ticker := time.NewTicker(mpsAskPace)
	defer ticker.Stop()
	for {
		servers, err := d.control.Servers(ctx)
		if err != nil {
			return false
		}
		d.see(servers)
		well := true
		for _, server := range servers {
			state, err := d.control.Status(ctx, server)
			well = well && err == nil && state == mps.Active
		}
		if well {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lost = false
			return true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// hasEnded reports whether the daemon's process has, of those that muster has started.
func (d *mpsDaemon) hasEnded() bool {
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

// see remembers servers, so that their end is seen, and they can be ended by identity.
func (d *mpsDaemon) see(servers []int) {
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

// goneServer is a server that was seen and is no more; 0: none.
func (d *mpsDaemon) goneServer() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for pid, id := range d.servers {
		if !proc.Lives(id) {
			return pid
		}
	}
	return 0
}

// forget takes a server for gone that has ended and was told of.
func (d *mpsDaemon) forget(server int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.servers, server)
}

// lines are the last lines of its logs, and before them what they say of a fatal error.
func (d *mpsDaemon) lines() []string {
	if d.log == "" {
		return nil
	}
	var all []string
	for _, name := range []string{mps.ServerLog, mps.ControlLog} {
		text, err := os.ReadFile(filepath.Join(d.log, name))
		if err != nil {
			continue
		}
		last := mps.LastLines(string(text), logLines/2)
		for _, line := range slices.Concat(mps.LastLines(strings.Join(mps.FatalWords(string(text)), "\n"), 2), last) {
			all = append(all, name+": "+line)
		}
	}
	if len(all) == 0 {
		text, _ := os.ReadFile(filepath.Join(d.log, "daemon.out"))
		all = mps.LastLines(string(text), logLines)
	}
	return all
}

// fullLog is all that the daemon's log says.
func (d *mpsDaemon) fullLog(name string) string {
	if d.log == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(d.log, name))
	return string(text)
}

// end ends a daemon of the run's own once its clients are gone: by its command, then what is
// left by identity. It says what cannot be ended.
func (d *mpsDaemon) end(reaper *proc.Reaper, run string) (left []string) {
	d.mu.Lock()
	d.ending = true
	d.mu.Unlock()
	if d.process == nil {
		return nil
	}
	if !d.hasEnded() {
		quit(d.control)
		d.awaitEnd()
	}
	for deadline := time.Now().Add(proc.KillWait); ; time.Sleep(2 * time.Millisecond) {
		alive := d.living(run)
		if len(alive) == 0 || time.Now().After(deadline) {
			for _, s := range alive {
				left = append(left, fmt.Sprintf("%s (pid %d, state %c)", s.Command, s.PID, s.State))
			}
			break
		}
		for _, s := range alive {
			_ = proc.Signal(s.ID, unix.SIGKILL) // what resists shows in the next round
		}
	}
	_ = os.RemoveAll(d.pipe)
	return left
}

// living are the daemon's processes: itself, servers that it was seen with, and what has its
// pipe directory and the run's mark.
func (d *mpsDaemon) living(run string) []proc.Stat {
	d.mu.Lock()
	known := map[proc.ID]bool{d.id: true}
	for _, id := range d.servers {
		known[id] = true
	}
	d.mu.Unlock()
	var all []proc.Stat
	for _, s := range proc.All() {
		if s.State == 'Z' || s.State == 'X' {
			continue
		}
		if known[s.ID] || isOfMPS(s) && ofDaemon(s.PID, run, d.pipe) {
			all = append(all, s)
		}
	}
	return all
}

// isOfMPS reports whether a process is one of MPS's programs, which the kernel knows by the
// beginning of their names.
func isOfMPS(s proc.Stat) bool {
	return strings.HasPrefix(mps.ControlProgram, s.Command) && len(s.Command) > len("nvidia-cuda-")
}

func ofDaemon(pid int, run, pipe string) bool {
	mine, _ := proc.EnvironOf(pid, keeper.RunVariable)
	where, _ := proc.EnvironOf(pid, mps.PipeDirectory)
	return mine == run && where == pipe
}

// awaitEnd gives a daemon that was told to end a moment, then has the keeper kill it.
func (d *mpsDaemon) awaitEnd() {
	select {
	case <-d.process.Ended:
		return
	case <-time.After(time.Second):
	}
	_ = d.process.Kill() // a keeper that is gone has taken it along
	select {
	case <-d.process.Ended:
	case <-time.After(time.Second): // its process is looked for by identity
	}
}

// begin reports whether daemons may be started still, and gives the context for it.
func (h *mpsHost) begin() (ctx context.Context, done func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = append(h.cancel, cancel)
	h.serving.Add(1)
	return ctx, func() { cancel(); h.serving.Done() }, true
}

// isUnused reports whether no daemon was ever asked for.
func (h *mpsHost) isUnused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.cancel) == 0
}

// close has no more daemons started, and waits for those that are being.
func (h *mpsHost) close() {
	h.mu.Lock()
	h.closed = true
	for _, cancel := range h.cancel {
		cancel()
	}
	h.mu.Unlock()
	h.serving.Wait()
}

func (h *mpsHost) of(device string) *mpsDaemon {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.all {
		if d.Device == device {
			return d
		}
	}
	return nil
}

func (h *mpsHost) add(d *mpsDaemon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, d)
}

func (h *mpsHost) remove(d *mpsDaemon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.all[:0]
	for _, other := range h.all {
		if other != d {
			kept = append(kept, other)
		}
	}
	h.all = kept
}

// daemons are those that serve now.
func (h *mpsHost) daemons() []*mpsDaemon {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*mpsDaemon(nil), h.all...)
}

// end ends all daemons of the run's own at once.
func (h *mpsHost) end(reaper *proc.Reaper, run string) (left []string) {
	h.close()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, d := range h.daemons() {
		all.Go(func() {
			words := d.end(reaper, run)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, words...)
		})
	}
	all.Wait()
	return left
}
