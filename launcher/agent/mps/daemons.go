//go:build linux

// Package mps runs the daemons of CUDA's Multi-Process Service that serve the run's ranks on this host: it starts them,
// sets their limits, notices when one is lost, ends them, and finds those that earlier runs have left.
package mps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/plugins/gpu"
)

// How often daemons and servers are checked: their processes and logs often, which costs next to nothing, and by asking
// the daemon where neither is known.
const (
	checkPace = 200 * time.Millisecond
	askPace   = time.Second
)

// Config is what the daemons need of the agent.
type Config struct {
	Place      rundir.Place
	Loop       *loop.Loop
	Reaper     *proc.Reaper
	Supervisor *keeper.Supervisor
	// Lost is called by the loop when a daemon or its server is lost: its ranks cannot go on.
	Lost func(*message.MPSLost)
}

// Daemons are the daemons that serve the run on this host. Serve and Clients may be called beside the loop.
type Daemons struct {
	Config
	turn    sync.Mutex // held by a Serve: two would start two daemons for one device
	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup
	unwatch context.CancelFunc

	mu     sync.Mutex
	all    []*daemon
	used   bool
	closed bool // no more are started
}

// New returns the daemons of a host without any.
func New(c Config) *Daemons {
	d := &Daemons{Config: c, unwatch: func() {}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Serve carries out a command: daemons that do not run yet are started, the others are checked.
func (ds *Daemons) Serve(c *message.Serve) *message.Served {
	served := &message.Served{Number: c.Number, Folders: map[string]message.MPSFolders{}}
	if !ds.begin() {
		served.Error = "the run is ending"
		return served
	}
	defer ds.serving.Done()
	ds.turn.Lock()
	defer ds.turn.Unlock()
	if ds.ctx.Err() != nil {
		served.Error = "the run is ending"
		return served
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, wanted := range c.Daemons {
		all.Go(func() {
			d, err := ds.daemonFor(c, i, wanted)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && served.Error == "" {
				served.Error, served.Log = fmt.Sprintf("MPS for %s: %v", wanted.Name, err), d.log
				served.Tail = []byte(strings.Join(d.lastLines(), "\n"))
			}
			served.Folders[wanted.Device] = message.MPSFolders{Pipe: d.pipe, Log: d.log, PID: d.id.PID}
		})
	}
	all.Wait()
	return served
}

func (ds *Daemons) begin() bool {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return false
	}
	ds.used = true
	ds.serving.Add(1)
	return true
}

// daemonFor returns a daemon for a device: that of the previous attempt if it is well, else a new one. The daemon is
// never nil.
func (ds *Daemons) daemonFor(c *message.Serve, number int, wanted message.MPSDaemon) (*daemon, error) {
	current := ds.daemons()
	if i := slices.IndexFunc(current, func(d *daemon) bool { return d.Device == wanted.Device }); i >= 0 {
		d := current[i]
		if d.isWell(ds.ctx) {
			return d, nil
		}
		ds.mu.Lock()
		ds.all = slices.DeleteFunc(ds.all, func(other *daemon) bool { return other == d })
		ds.mu.Unlock()
		d.end(ds.Place.Run)
	}
	d := &daemon{MPSDaemon: wanted, pipe: wanted.Existing, servers: map[int]proc.ID{}}
	if wanted.Existing != "" {
		d.control = controlOf(ds.Reaper, c.Program, d.pipe)
		err := d.checkExisting(ds.ctx)
		if err == nil {
			ds.add(d)
		}
		return d, err
	}
	if err := ds.start(d, c.Program, number); err != nil {
		return d, err
	}
	return d, d.control.SetShares(ds.ctx, 0, wanted.Threads, wanted.Memory)
}

func (ds *Daemons) add(d *daemon) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.all = append(ds.all, d)
}

func (ds *Daemons) daemons() []*daemon {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return slices.Clone(ds.all)
}

// Unused reports whether no daemon was ever asked for.
func (ds *Daemons) Unused() bool {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return !ds.used
}

// End ends all daemons of the run at once, and describes what cannot be ended.
func (ds *Daemons) End() (left []string) {
	ds.mu.Lock()
	ds.closed = true
	ds.mu.Unlock()
	ds.cancel()
	ds.serving.Wait()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, d := range ds.daemons() {
		all.Go(func() {
			remains := d.end(ds.Place.Run)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, remains...)
		})
	}
	all.Wait()
	return left
}

// Watch checks the daemons until Unwatch, while the workers of an attempt run.
func (ds *Daemons) Watch() {
	ds.unwatch()
	daemons := ds.daemons()
	if len(daemons) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ds.unwatch = stop
	go func() {
		ticker := time.NewTicker(checkPace)
		defer ticker.Stop()
		asked := time.Now()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if time.Since(asked) >= askPace {
				asked = time.Now()
				for _, d := range daemons {
					d.ask(ctx)
				}
			}
			for _, d := range daemons {
				if f := d.failure(); f != nil {
					ds.Loop.Post(func() { ds.lose(d, f) })
				}
			}
		}
	}()
}

// Unwatch ends Watch.
func (ds *Daemons) Unwatch() { ds.unwatch() }

// Check checks the daemon of a rank, by its place on the host, before the rank's end is reported: what ended first must
// be reported first.
func (ds *Daemons) Check(local int) {
	for _, d := range ds.daemons() {
		if !slices.Contains(d.Locals, local) {
			continue
		}
		if f := d.failure(); f != nil {
			ds.lose(d, f)
		}
	}
}

// lose reports once that a daemon serves no more: as long as one of its ranks holds on, nobody can be served on the
// device, and none of them can go on.
func (ds *Daemons) lose(d *daemon, f *failure) {
	if d.markLost(f.server) {
		ds.Lost(&message.MPSLost{
			Device: d.Device, Fault: f.fault, Message: f.text, Locals: d.Locals, Lines: d.lastLines(), Log: d.log,
		})
	}
}

// Clients asks all daemons for their clients.
func (ds *Daemons) Clients(ctx context.Context) []gpu.MPSClients {
	daemons := ds.daemons()
	all := make([]gpu.MPSClients, len(daemons))
	var asked sync.WaitGroup
	for i, d := range daemons {
		asked.Go(func() { all[i] = d.clients(ctx) })
	}
	asked.Wait()
	return all
}

func (d *daemon) knownServers() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.servers))
}
