//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/version"
	"github.com/muster-dev/muster/rendezvous/link"
)

// launcherConn connects the agent with the launcher, a JSON object a line, over the standard streams that the keeper
// was started with.
type launcherConn struct {
	mu  sync.Mutex
	in  *os.File
	out *os.File
}

// send sends a line. A launcher that has left receives nothing more; the run does not need it to.
func (c *launcherConn) send(m message.FromAgent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(append(message.Encode(m), '\n'))
}

const maxLine = 4 << 20

// receive hands each line to handle until the launcher has left, which is an error too.
func (c *launcherConn) receive(handle func(*message.ToAgent, error)) {
	lines := bufio.NewScanner(c.in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m message.ToAgent
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			handle(nil, fmt.Errorf("launcher said %.80q: %w", lines.Text(), err))
			return
		}
		handle(&m, nil)
	}
	handle(nil, errors.Join(io.EOF, lines.Err()))
}

// introduce probes the devices and says hello. It runs beside the loop: a driver can take its time.
func (a *agent) introduce() {
	host := a.probe.Facts(a.facts, a.place, a.supervisor)
	a.launcher.send(message.FromAgent{Hello: &message.Hello{
		Version: version.String(), Pin: a.identity.Pin(), Facts: host, Clock: wallClock(),
	}})
}

func (a *agent) refuse(text string) {
	a.launcher.send(message.FromAgent{Error: text})
	a.finished = true
}

// handleLauncher handles what the launcher says. It matters until the Join; then the coordinator decides, and the
// launcher may leave.
func (a *agent) handleLauncher(m *message.ToAgent, err error) {
	if err != nil {
		if !a.joining {
			a.finished = true
		}
		return
	}
	a.silent = 0
	if m.Join != nil && !a.joining {
		a.joining = true
		go a.join(m.Join)
	}
}

// join links to the coordinator at the first address that proves itself, and reports which ones this host reaches.
func (a *agent) join(j *message.Join) {
	var results []link.Reach
	linked := false
	for r := range link.Probe(context.Background(), a.identity, j.Coordinator, j.Addrs) {
		results = append(results, r)
		reached := &message.Reached{Results: slices.Clone(results), Complete: len(results) == len(j.Addrs)}
		if !linked && r.Error == "" {
			linked = true
			a.loop.Post(func() { a.link(j, r.Addr) })
		}
		if linked {
			a.loop.Post(func() { a.loop.Report(message.Update{Reached: reached}) })
		}
	}
	if linked {
		return
	}
	var tried []string
	for _, r := range results {
		tried = append(tried, r.Addr+": "+r.Error)
	}
	a.loop.Post(func() { a.refuse("cannot reach the head host " + j.Head + ": " + strings.Join(tried, "; ")) })
}

func (a *agent) link(j *message.Join, addr string) {
	member, err := link.Join(a.identity, j.Coordinator, addr, a.lease)
	if err != nil {
		a.refuse(err.Error())
		return
	}
	a.loop.Join(member)
}
