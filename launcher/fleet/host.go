package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Host is a host with an agent that was started there. One that was attached to has none.
type Host struct {
	Name  string
	Hello *message.Hello
	Ready *message.Ready // of the head host
	// ClockOffset is how far its clock is ahead, and ClockError by how much that may be wrong:
	// the hello took some part of that to arrive.
	ClockOffset, ClockError float64
	Updates                 chan Update // what the agent says after its hello

	remote  remote.Host
	process *remote.Process
	started time.Time // when its agent was asked to start
	gone    chan struct{}
	goneErr error // valid once gone is closed

	mu     sync.Mutex // held while something is said to the agent
	joined bool
}

// Update is a message of an agent, or why there will be no more.
type Update struct {
	message.FromAgent
	Err error
	at  time.Time
}

func newHost(name string) *Host {
	return &Host{Name: name, Updates: make(chan Update, 8), gone: make(chan struct{})}
}

// begin connects, starts the agent and waits for its hello.
func (h *Host) begin(ctx context.Context, connect Connector, in Invitation) (err error) {
	if h.remote, err = connect(ctx, in.Target); err != nil {
		h.remote = nil
		return err
	}
	h.started = time.Now()
	process, err := h.remote.Start(ctx, in.Launch)
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
	return h.awaitHello(ctx, len(in.Launch.Also) > 0)
}

// helloWait bounds how long an agent may take to say hello. Facts take milliseconds, a look at
// the devices at most the limits in launcher/agent together; the rest is for a busy machine.
const helloWait = 100 * time.Second

// awaitHello waits for the agent's hello, and on the head host for the coordinator's.
func (h *Host) awaitHello(ctx context.Context, withCoordinator bool) error {
	late := time.NewTimer(helloWait)
	defer late.Stop()
	for h.Hello == nil || withCoordinator && h.Ready == nil {
		select {
		case u := <-h.Updates:
			if err := h.take(u); err != nil {
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

func (h *Host) take(u Update) error {
	switch {
	case u.Err != nil && h.process.Stderr() != "":
		return fmt.Errorf("muster-agent there ended: %s", h.process.Stderr())
	case u.Err != nil:
		return fmt.Errorf("muster-agent there ended: %w", u.Err)
	case u.Error != "":
		return errors.New(u.Error)
	case u.Hello != nil:
		h.Hello = u.Hello
		// The host's time is taken for that of the middle between starting and hearing.
		half := u.at.Sub(h.started) / 2
		h.ClockOffset = h.Hello.Clock - float64(h.started.Add(half).UnixNano())/1e9
		h.ClockError = half.Seconds()
	case u.Coordinator != nil:
		h.Ready = u.Coordinator
	}
	return nil
}

const beatEvery = time.Second

// beat sends the agent heartbeats until it has joined its coordinator: without them it ends.
func (h *Host) beat() {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-h.gone:
			return
		case <-ticker.C:
			if !h.send(message.ToAgent{}) {
				return
			}
		}
	}
}

// Join sends the agent to its coordinator. One that has ended shows in its updates.
func (h *Host) Join(j message.Join) {
	j.Name = h.Name
	h.send(message.ToAgent{Join: &j})
}

// send sends the agent a message, unless it has joined and reads no more.
func (h *Host) send(m message.ToAgent) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.joined {
		return false
	}
	h.joined = m.Join != nil
	_, err := h.process.Stdin.Write(append(message.Encode(m), '\n'))
	return err == nil
}

const maxLine = 16 << 20

// listen passes on what the agent says until it has no more to say.
func (h *Host) listen() {
	lines := bufio.NewScanner(h.process.Stdout)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		u := Update{at: time.Now()}
		if err := json.Unmarshal(lines.Bytes(), &u.FromAgent); err != nil {
			h.Updates <- Update{Err: fmt.Errorf("it said %.80q", lines.Text())}
			return
		}
		h.Updates <- u
	}
	h.Updates <- Update{Err: errors.Join(io.EOF, lines.Err())}
}

// ComplaintOr is a failure to hand the run over: what the agent has said about it, such as the
// coordinator's end, or else err.
func (h *Host) ComplaintOr(exit int, err error) error {
	for {
		select {
		case u := <-h.Updates:
			if u.Error != "" {
				return report.Errorf(report.ExitInternal, "%s: %s; nothing was started", h.Name, u.Error)
			}
		default:
			return report.Errorf(exit, "%v", err)
		}
	}
}

// Remote is the connection to the host.
func (h *Host) Remote() remote.Host { return h.remote }

// Reconnect goes on with another connection to the host. The old one is broken.
func (h *Host) Reconnect(connection remote.Host) {
	h.Disconnect()
	h.remote = connection
}

// Disconnect closes the connection: nothing more is said over it.
func (h *Host) Disconnect() {
	if h.remote != nil {
		_ = h.remote.Close()
	}
}

// Gone is closed when the keeper has ended, or the connection to it.
func (h *Host) Gone() <-chan struct{} { return h.gone }

// IsAttached reports whether the host's keeper is not this launcher's: nothing shows its end.
func (h *Host) IsAttached() bool { return h.process == nil }

// IsLost reports, of a host that is gone, whether the connection was lost, which says nothing
// of the keeper.
func (h *Host) IsLost() bool {
	var lost *remote.LostError
	return errors.As(h.goneErr, &lost)
}

// IsEmpty reports, of a host that is gone, whether its keeper has ended by itself: nothing of
// the run is left there. When a keeper was killed its agent is still ending the workers.
func (h *Host) IsEmpty() bool {
	var killed *remote.ExitError
	return !h.IsLost() && !(errors.As(h.goneErr, &killed) && killed.Signal != "")
}
