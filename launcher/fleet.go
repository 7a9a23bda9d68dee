package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Connector connects to one host.
type Connector func(ctx context.Context, target remote.Target) (remote.Host, error)

// fleet is the hosts of a run, each with an agent that was started there.
type fleet struct {
	hosts []*fleetHost
}

type fleetHost struct {
	name    string
	remote  remote.Host
	process *remote.Process
	beats   sync.Mutex // held while something is said to the agent
	joined  bool
	hello   *message.Hello
	asked   time.Time // when its agent was started
	// clockOffset is how far its clock is ahead, and clockError by how much that may be
	// wrong: its word was on the way for some part of that.
	clockOffset, clockError float64
	ready                   *message.Ready // of the head host
	words                   chan heard     // what the agent says after its hello
	gone                    chan struct{}  // closed when the keeper has ended, or the connection
	goneErr                 error          // how, once gone is closed
}

type heard struct {
	words message.FromAgent
	at    time.Time
	err   error
}

// invitation is a host to be brought in and what is to be started there.
type invitation struct {
	name   string // that the user knows it by
	target remote.Target
	launch remote.Launch
}

// assemble connects to all hosts at once and starts an agent on each. It returns when
// every host has said hello or has failed.
func assemble(ctx context.Context, connect Connector, invited []invitation, done func(n int)) (*fleet, error) {
	f := &fleet{hosts: make([]*fleetHost, len(invited))}
	errs := make([]error, len(invited))
	var mu sync.Mutex
	finished := 0
	var all sync.WaitGroup
	for i, in := range invited {
		f.hosts[i] = &fleetHost{name: in.name, words: make(chan heard, 8), gone: make(chan struct{})}
		all.Go(func() {
			errs[i] = f.hosts[i].begin(ctx, connect, in.target, in.launch)
			mu.Lock()
			defer mu.Unlock()
			finished++
			done(finished)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		f.dismiss(endWait)
		return nil, context.Cause(ctx)
	}
	var list hostErrors
	for i, err := range errs {
		if err != nil {
			list = append(list, hostError{invited[i].name, err})
		}
	}
	if len(list) > 0 {
		f.dismiss(endWait)
		return nil, list.failure(len(invited))
	}
	return f, nil
}

// begin connects, starts the agent and waits for its first words.
func (h *fleetHost) begin(ctx context.Context, connect Connector, target remote.Target, launch remote.Launch) error {
	host, err := connect(ctx, target)
	if err != nil {
		return err
	}
	h.remote = host
	h.asked = time.Now()
	process, err := host.Start(ctx, launch)
	if err != nil {
		return err
	}
	h.process = process
	go h.listen()
	go h.beat()
	go func() {
		h.goneErr = process.Wait()
		close(h.gone)
	}()
	return h.awaitHello(ctx, len(launch.Also) > 0)
}

// helloWait bounds how long an agent may take to say its first words. Facts take
// milliseconds, a look at the devices at most the limits in launcher/agent together; the
// rest is for a machine that is busy.
const helloWait = 100 * time.Second

// awaitHello waits for the agent's first words, and on the head host the coordinator's.
func (h *fleetHost) awaitHello(ctx context.Context, withCoordinator bool) error {
	late := time.NewTimer(helloWait)
	defer late.Stop()
	for h.hello == nil || withCoordinator && h.ready == nil {
		select {
		case w := <-h.words:
			if err := h.take(w); err != nil {
				return err
			}
		case <-late.C:
			return fmt.Errorf("muster-agent was started there but has said nothing for %v", helloWait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// beat gives the agent a sign of life until it has joined its coordinator: one that hears
// none ends itself.
func (h *fleetHost) beat() {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-h.gone:
			return
		case <-ticker.C:
			if !h.say(message.ToAgent{}) {
				return
			}
		}
	}
}

const beatEvery = time.Second

// say says a line to the agent, unless it has joined and hears no more.
func (h *fleetHost) say(words message.ToAgent) bool {
	h.beats.Lock()
	defer h.beats.Unlock()
	if h.joined {
		return false
	}
	h.joined = words.Join != nil
	_, err := h.process.Stdin.Write(append(message.Encode(words), '\n'))
	return err == nil
}

func (h *fleetHost) take(w heard) error {
	switch {
	case w.err != nil:
		return h.explain(w.err)
	case w.words.Error != "":
		return errors.New(w.words.Error)
	case w.words.Hello != nil:
		h.hello = w.words.Hello
		h.compareClocks(w.at)
	case w.words.Coordinator != nil:
		h.ready = w.words.Coordinator
	}
	return nil
}

// compareClocks takes the host's time for that of the middle between asking and hearing.
func (h *fleetHost) compareClocks(heard time.Time) {
	half := heard.Sub(h.asked) / 2
	middle := h.asked.Add(half)
	h.clockOffset, h.clockError = h.hello.Clock-float64(middle.UnixNano())/1e9, half.Seconds()
}

// complaintOr is a failure to hand the run over: what the agent has said of it, its
// coordinator's end for example, or else err. The host has been dismissed.
func (h *fleetHost) complaintOr(exit int, err error) error {
	for {
		select {
		case w := <-h.words:
			if w.words.Error != "" {
				return failure(report.ExitInternal, "%s: %s; nothing was started", h.name, w.words.Error)
			}
		default:
			return failure(exit, "%v", err)
		}
	}
}

// explain says why an agent has stopped talking.
func (h *fleetHost) explain(err error) error {
	stderr := h.process.Stderr()
	if stderr != "" {
		return fmt.Errorf("muster-agent there ended: %s", stderr)
	}
	return fmt.Errorf("muster-agent there ended: %w", err)
}

const maxLine = 16 << 20

// listen passes on what the agent says, until it has no more to say.
func (h *fleetHost) listen() {
	lines := bufio.NewScanner(h.process.Stdout)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var w message.FromAgent
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			h.words <- heard{err: fmt.Errorf("it said %.80q", lines.Text())}
			return
		}
		h.words <- heard{words: w, at: time.Now()}
	}
	h.words <- heard{err: errors.Join(io.EOF, lines.Err())}
}

// facts returns what the hosts said of themselves, in their order.
func (f *fleet) facts() []facts.Host {
	all := make([]facts.Host, len(f.hosts))
	for i, h := range f.hosts {
		all[i] = h.hello.Facts
	}
	return all
}

// endWait bounds how long keepers may take to end once their work is over.
const endWait = 10 * time.Second

// dismiss lets all hosts go: agents that have no run end when they hear no more. It
// waits until the keepers are gone and returns the names of those that are not.
func (f *fleet) dismiss(patience time.Duration) []string {
	for _, h := range f.hosts {
		if h.process != nil {
			h.process.Stdin.Close()
		}
	}
	timeout := time.After(patience)
	var left []string
	for _, h := range f.hosts {
		if h.process == nil {
			continue
		}
		select {
		case <-h.gone:
		case <-timeout:
			left = append(left, h.name)
		}
	}
	f.leave()
	return left
}

// alive names the hosts whose keeper was not seen to end.
func (f *fleet) alive() []string {
	var names []string
	for _, h := range f.hosts {
		select {
		case <-h.gone:
		default:
			names = append(names, h.name)
		}
	}
	return names
}

// leave closes the connections and waits for nothing.
func (f *fleet) leave() {
	var closing sync.WaitGroup
	for _, h := range f.hosts {
		if h.remote != nil {
			closing.Go(func() { _ = h.remote.Close() }) // nothing is left to be told
		}
	}
	closing.Wait()
}
