package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/mps"
)

// How often it is looked whether daemons and servers live: at their processes and logs often,
// which costs next to nothing, and by asking where neither is known.
const (
	mpsPace    = 200 * time.Millisecond
	mpsAskEach = time.Second
)

// watchMPS begins to watch the daemons of MPS as long as the workers of an attempt run.
func (a *agent) watchMPS() {
	a.mps.unwatch()
	daemons := a.mps.daemons()
	if len(daemons) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	a.mps.stop = stop
	go func() {
		ticker := time.NewTicker(mpsPace)
		defer ticker.Stop()
		asked := time.Now()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if time.Since(asked) >= mpsAskEach {
				asked = time.Now()
				for _, d := range daemons {
					d.ask(ctx)
				}
			}
			for _, d := range daemons {
				if why := d.trouble(); why != nil {
					a.post(func() { a.loseMPS(d, *why) })
				}
			}
		}
	}()
}

func (h *mpsHost) unwatch() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// ask learns the daemon's servers, where none is known yet, and, where no log tells of
// faults, their states.
func (d *mpsDaemon) ask(ctx context.Context) {
	d.mu.Lock()
	known := len(d.servers) > 0
	d.mu.Unlock()
	if known && d.log != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, mpsAnswerWait)
	defer cancel()
	servers, err := d.control.Servers(ctx)
	if err != nil {
		return // said by the sight
	}
	d.see(servers)
	for _, server := range servers {
		if state, err := d.control.Status(ctx, server); err == nil && state == mps.Fault {
			d.mu.Lock()
			d.faulty = true
			d.mu.Unlock()
		}
	}
}

// mpsTrouble is what has become of a daemon.
type mpsTrouble struct {
	fault   bool
	message string
	server  int // that is gone; 0: none
}

// trouble says what is wrong with a daemon that serves; nil: nothing.
func (d *mpsDaemon) trouble() *mpsTrouble {
	d.mu.Lock()
	ignore, faulty := d.ending || d.lost, d.faulty
	d.mu.Unlock()
	switch server := d.goneServer(); {
	case ignore:
		return nil
	case d.hasEnded():
		return &mpsTrouble{message: fmt.Sprintf("the MPS daemon of %s (pid %d) has ended: %s", d.Name, d.id.PID, d.process.How())}
	case server != 0:
		how := ""
		if said := mps.Exited(d.fullLog(mps.ControlLog), server); said != "" {
			how = " with " + said + ", by its daemon's log"
		}
		return &mpsTrouble{message: fmt.Sprintf("the MPS server of %s (pid %d) has ended%s", d.Name, server, how), server: server}
	case faulty || d.saysFault():
		return &mpsTrouble{fault: true, message: fmt.Sprintf("the MPS server of %s met a fatal GPU fault of one of its clients, which ends all of them", d.Name)}
	}
	return nil
}

// skipLog leaves out what the server's log says already.
func (d *mpsDaemon) skipLog() {
	if info, err := os.Stat(filepath.Join(d.log, mps.ServerLog)); err == nil {
		d.read = info.Size()
	}
}

// saysFault reports whether the server's log tells of a fatal fault since it was last read.
func (d *mpsDaemon) saysFault() bool {
	if d.log == "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path := filepath.Join(d.log, mps.ServerLog)
	info, err := os.Stat(path)
	if err != nil || info.Size() <= d.read {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	text := make([]byte, info.Size()-d.read)
	n, _ := f.ReadAt(text, d.read)
	// A line that is only half there is read again.
	whole := strings.LastIndexByte(string(text[:n]), '\n') + 1
	d.read += int64(whole)
	return len(mps.FatalWords(string(text[:whole]))) > 0
}

// checkMPS looks once more at a rank's daemon before the rank's end is told: what ended first
// is to be heard first.
func (a *agent) checkMPS(w *worker) {
	for _, d := range a.mps.daemons() {
		if !slices.Contains(d.Locals, w.local) {
			continue
		}
		if why := d.trouble(); why != nil {
			a.loseMPS(d, *why)
		}
	}
}

// loseMPS ends the ranks of a daemon that serves no more, at once: as long as one of them
// holds on, nobody can be served on the device, and none of them can go on.
func (a *agent) loseMPS(d *mpsDaemon, why mpsTrouble) {
	d.mu.Lock()
	again := d.lost || d.ending
	d.lost = true
	d.faulty = false
	d.mu.Unlock()
	d.forget(why.server)
	if again || a.failing != "" || a.clearing || why.message == "" {
		return
	}
	for _, w := range a.workers {
		if slices.Contains(d.Locals, w.local) {
			w.stop(0, true)
		}
	}
	a.tell(message.Update{MPSLost: &message.MPSLost{
		Attempt: a.attempt, Device: d.Device, Fault: why.fault, Message: why.message, Locals: d.Locals, Lines: d.lines(), Log: d.log,
	}})
}

// look asks all daemons for their clients.
func (h *mpsHost) look(ctx context.Context) []message.MPSSight {
	daemons := h.daemons()
	all := make([]message.MPSSight, len(daemons))
	var looks sync.WaitGroup
	for i, d := range daemons {
		looks.Go(func() { all[i] = d.look(ctx) })
	}
	looks.Wait()
	return all
}

func (d *mpsDaemon) look(ctx context.Context) message.MPSSight {
	ctx, cancel := context.WithTimeout(ctx, mpsAnswerWait)
	defer cancel()
	seen := message.MPSSight{Device: d.Device, Clients: map[int]int{}}
	servers, err := d.control.Servers(ctx)
	if err == nil {
		d.see(servers)
		seen.Servers = servers
	}
	for _, server := range servers {
		clients, asked := d.control.Clients(ctx, server)
		err = errors.Join(err, asked)
		for _, pid := range clients {
			seen.Clients[pid] = message.Nobodys
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

func (d *mpsDaemon) knownServers() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.servers))
}

// fillMPS finds out which ranks the clients are.
func (a *agent) fillMPS(seen *message.Sight, told []message.MPSSight) {
	if len(told) == 0 {
		return
	}
	rankOf, serves := a.ranksByPID(), map[int]bool{}
	for _, one := range told {
		for pid := range one.Clients {
			if owner, known := rankOf[pid]; known {
				one.Clients[pid] = owner.Rank
			}
		}
		for _, pid := range one.Servers {
			serves[pid] = true
		}
		seen.MPS = append(seen.MPS, one)
	}
	for i, h := range seen.Held {
		seen.Held[i].Serves = serves[h.PID]
	}
}
