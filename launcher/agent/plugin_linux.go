package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/plugins/external"
)

// pluginOrder has the keeper start a plugin. Its files were lent before: program, output,
// error.
type pluginOrder struct {
	Number int      `json:"number"`
	Argv   []string `json:"argv"`
	Env    []string `json:"env"` // beside the keeper's own
	// MPS is set where it is no plugin but a daemon of MPS.
	MPS *mpsSpec `json:"mps,omitempty"`
}

// pluginNews is what became of a plugin.
type pluginNews struct {
	Number int           `json:"number"`
	PID    int           `json:"pid,omitempty"`
	Error  string        `json:"error,omitempty"` // why it was not started
	Errno  syscall.Errno `json:"errno,omitempty"` // the kernel's word for that
	Ended  string        `json:"ended,omitempty"` // how
}

// endedWell is how a plugin's end with exit status 0 is told.
const endedWell = "exit status 0"

// lentFiles is how many files a plugin is started with.
const lentFiles = 3

// startPlugin starts a plugin as a child of the keeper, which outlives an agent.
func (k *keeper) startPlugin(order pluginOrder) {
	lent := k.lent
	k.lent = nil
	defer closeAll(lent)
	news := &pluginNews{Number: order.Number}
	if len(lent) != lentFiles {
		news.Error = "its files did not arrive"
		_ = k.leash.send(tug{PluginIs: news}, nil)
		return
	}
	program, stdout, stderr := lent[0], lent[1], lent[2]
	spec := proc.Spec{
		Path: fmt.Sprintf("/proc/self/fd/%d", lentFiles), Argv: order.Argv, Env: slices.Concat(os.Environ(), order.Env), Dir: "/",
		Files: []*os.File{nil, stdout, stderr, program}, Group: true, GroupDies: true, DieWithParent: true,
	}
	if order.MPS != nil {
		spec = order.MPS.process(order, spec)
	}
	child, err := k.reaper.Start(spec)
	if err != nil {
		news.Error = err.Error()
		errors.As(err, &news.Errno)
		_ = k.leash.send(tug{PluginIs: news}, nil)
		return
	}
	maps.DeleteFunc(k.plugins, func(_ int, old *proc.Child) bool { return hasEnded(old) })
	k.plugins[order.Number] = child
	if order.MPS != nil {
		allowFiles(child.ID.PID)
		k.mps = append(k.mps, servedMPS{*order.MPS, child})
	}
	news.PID = child.ID.PID
	_ = k.leash.send(tug{PluginIs: news}, nil) // an agent that is gone shows in its exit
	go func() {
		<-child.Done
		_ = k.leash.send(tug{PluginIs: &pluginNews{Number: order.Number, Ended: child.Exit().String()}}, nil)
	}()
}

func (k *keeper) killPlugin(number int) {
	if child := k.plugins[number]; child != nil && !hasEnded(child) {
		_ = unix.Kill(-child.ID.PID, unix.SIGKILL)
	}
}

func hasEnded(child *proc.Child) bool {
	select {
	case <-child.Done:
		return true
	default:
		return false
	}
}

// pluginDesk starts plugins by way of the keeper.
type pluginDesk struct {
	leash *leash
	turn  sync.Mutex // held by a Start: what it lends must not mix with another's
	mu    sync.Mutex
	count int
	all   map[int]*keptPlugin
	gone  bool // the keeper is
}

var _ external.Starter = (*pluginDesk)(nil)

func newPluginDesk(l *leash) *pluginDesk { return &pluginDesk{leash: l, all: map[int]*keptPlugin{}} }

// keptPlugin is a plugin's process, the keeper's child.
type keptPlugin struct {
	number         int
	leash          *leash
	stdout, stderr *os.File
	started, ended chan struct{}
	news           pluginNews // of the start, once started is closed
	how            string     // it has ended, once ended is closed
}

// Start has the keeper start a plugin.
func (d *pluginDesk) Start(ctx context.Context, s external.Spec) (external.Process, error) {
	p, theirs, err := d.open()
	defer closeAll(theirs)
	if err != nil {
		return nil, err
	}
	if err := d.start(ctx, p, append([]*os.File{s.File}, theirs...), pluginOrder{p.number, s.Argv, beside(s.Env), nil}); err != nil {
		return nil, err
	}
	return p, nil
}

// start lends the files of a process and has it started.
func (d *pluginDesk) start(ctx context.Context, p *keptPlugin, files []*os.File, order pluginOrder) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	fail := func(err error) error {
		closeAll([]*os.File{p.stdout, p.stderr})
		return err
	}
	for i, file := range files {
		if err := d.leash.send(tug{Lend: []string{"program", "output", "error"}[i]}, file); err != nil {
			return fail(fmt.Errorf("ask the keeper: %w", err))
		}
	}
	if err := d.leash.send(tug{Plugin: &order}, nil); err != nil {
		return fail(fmt.Errorf("ask the keeper: %w", err))
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		_ = d.leash.send(tug{Kill: p.number}, nil)
		return fail(context.Cause(ctx))
	}
	if p.news.Error != "" {
		return fail(startError{p.news})
	}
	return nil
}

// beside are the variables that a plugin needs and the keeper, whose environment is this
// process's, does not have.
func beside(environ []string) []string {
	own := os.Environ()
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return slices.Contains(own, entry) })
}

// startError is a start that failed at the keeper's.
type startError struct{ news pluginNews }

func (e startError) Error() string { return e.news.Error }

// Unwrap is the kernel's word, for errors.Is.
func (e startError) Unwrap() error {
	if e.news.Errno == 0 {
		return nil
	}
	return e.news.Errno
}

// open makes the pipes of a plugin and its place among all.
func (d *pluginDesk) open() (p *keptPlugin, theirs []*os.File, err error) {
	p = &keptPlugin{leash: d.leash, started: make(chan struct{}), ended: make(chan struct{})}
	var ends [2]*os.File
	if p.stdout, ends[0], err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if p.stderr, ends[1], err = os.Pipe(); err != nil {
		closeAll([]*os.File{p.stdout, ends[0]})
		return nil, nil, err
	}
	if err := d.enter(p); err != nil {
		closeAll([]*os.File{p.stdout, p.stderr})
		return nil, ends[:], err
	}
	return p, ends[:], nil
}

// enter gives a process its number.
func (d *pluginDesk) enter(p *keptPlugin) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return errors.New("the keeper is gone")
	}
	d.count++
	p.number = d.count
	d.all[p.number] = p
	return nil
}

// hear takes in what the keeper says of a plugin.
func (d *pluginDesk) hear(n pluginNews) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.all[n.Number]
	switch {
	case p == nil:
	case n.Ended != "":
		p.how = n.Ended
		close(p.ended)
		delete(d.all, n.Number)
	default:
		p.news = n
		close(p.started)
		if n.Error != "" {
			delete(d.all, n.Number)
		}
	}
}

// end is told when the keeper is gone: nothing will be heard any more.
func (d *pluginDesk) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
	for _, p := range d.all {
		p.news.Error, p.how = "the keeper is gone", "its keeper is gone"
		select {
		case <-p.started:
		default:
			close(p.started)
		}
		close(p.ended)
	}
	clear(d.all)
}

func (p *keptPlugin) PID() int              { return p.news.PID }
func (p *keptPlugin) Stdout() io.ReadCloser { return p.stdout }
func (p *keptPlugin) Stderr() io.ReadCloser { return p.stderr }

func (p *keptPlugin) Kill() error { return p.leash.send(tug{Kill: p.number}, nil) }

func (p *keptPlugin) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		if p.how != endedWell {
			return errors.New(p.how)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
