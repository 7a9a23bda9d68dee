package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
	"github.com/muster-dev/muster/launcher/remote/wire"
)

// maxJumps bounds a chain of jump hosts, so that two that name each other end in
// an error.
const maxJumps = 8

// route is a target and how it is reached. Routes are resolved to their end
// before anything is connected: jump hosts that name each other would otherwise
// wait for each other.
type route struct {
	target   Target
	settings *sshconfig.Settings
	via      *route // a jump host that was asked for; nil: as the configuration says
	jump     *route // the jump host to take; nil: none
}

// route resolves a target by the configuration, and its jump hosts.
func (d *Dialer) route(ctx context.Context, target Target) (*route, error) {
	r := &route{target: target}
	jumps := 0
	for at := r; at != nil; at = at.jump {
		var err error
		if at.settings, err = d.settings(ctx, at.target); err != nil {
			return nil, &ConnectError{Host: target.Name, Kind: KindConfig, Err: err}
		}
		at.findJump()
		if jumps++; jumps > maxJumps {
			err := fmt.Errorf("more than %d jump hosts in a row: do they name each other?", maxJumps)
			return nil, &ConnectError{Host: target.Name, Kind: KindConfig, Err: err}
		}
	}
	return r, nil
}

// findJump sets the last jump host before the target. In "ProxyJump a,b" the
// configuration's own jump hosts of a count, those of b do not.
func (r *route) findJump() {
	if r.via != nil {
		r.jump = r.via
		return
	}
	for _, hop := range r.settings.Jumps {
		r.jump = &route{target: Target{Name: hop.Host, User: hop.User, Port: hop.Port}, via: r.jump}
	}
}

// name tells routes apart: two hosts share a jump host only if it is reached the
// same way.
func (r *route) name() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s>%s@%s:%d", r.jump.name(), r.target.User, r.target.Name, r.target.Port)
}

// hop is a connection to a jump host, shared by all hosts behind it.
type hop struct {
	hops  *hops
	name  string
	ready chan struct{} // closed when what follows is set
	host  *sshHost
	err   error
	users int // guarded by hops.mu
}

// hops holds the connections to jump hosts that are in use.
type hops struct {
	mu   sync.Mutex
	open map[string]*hop
}

// jump connects to the jump host of a route, or joins a connection to it. nil:
// the route has none.
func (d *Dialer) jump(ctx context.Context, r *route) (*hop, error) {
	to := r.jump
	if to == nil {
		return nil, nil
	}
	for {
		h, first := d.hops.join(to.name())
		if first {
			h.host, h.err = d.connect(ctx, to)
			close(h.ready)
		}
		err := h.wait(ctx)
		if err == nil {
			return h, nil
		}
		h.release()
		if first || ctx.Err() != nil || !canceled(err) {
			return nil, atHop(err, r.target.Name, to.target.Name)
		}
		// Who was first gave up; that is no reason for the others.
	}
}

// join returns the connection of a name; first: the caller has to make it.
func (hs *hops) join(name string) (h *hop, first bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h = hs.open[name]; h == nil || h.failed() {
		h, first = &hop{hops: hs, name: name, ready: make(chan struct{})}, true
		if hs.open == nil {
			hs.open = map[string]*hop{}
		}
		hs.open[name] = h
	}
	h.users++
	return h, first
}

// failed reports whether the connection was not made, or was lost.
func (h *hop) failed() bool {
	select {
	case <-h.ready:
		return h.err != nil || h.host.isLost()
	default:
		return false
	}
}

func (h *hop) wait(ctx context.Context) error {
	select {
	case <-h.ready:
		return h.err
	case <-ctx.Done():
		return &ConnectError{Kind: KindCanceled, Err: context.Cause(ctx)}
	}
}

// release gives the connection up; with its last user it is closed.
func (h *hop) release() {
	if h == nil {
		return
	}
	h.hops.mu.Lock()
	h.users--
	last := h.users == 0
	if last && h.hops.open[h.name] == h {
		delete(h.hops.open, h.name)
	}
	h.hops.mu.Unlock()
	if last && h.host != nil {
		h.host.Close()
	}
}

// dial connects from the jump host to an address.
func (h *hop) dial(ctx context.Context, s *sshconfig.Settings) (net.Conn, error) {
	conn, err := h.host.dialTCP(ctx, s.Host, s.Port)
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) {
		return conn, err
	}
	out := &ConnectError{Host: s.Name(), Hop: h.host.name, Kind: KindProxy}
	out.Err = fmt.Errorf("cannot reach %s from there: %s", s.Address(), refused.Message)
	text := strings.ToLower(refused.Message)
	switch {
	case refused.Reason == ssh.Prohibited:
		out.Hint = "AllowTcpForwarding or PermitOpen in its sshd_config forbids it"
	case strings.Contains(text, "refused"):
		out.Kind, out.Hint = KindRefused, "is sshd running there, and is that its port?"
	case strings.Contains(text, "unknown host"), strings.Contains(text, "resolution"), strings.Contains(text, "not known"):
		out.Kind, out.Hint = KindResolve, "is it spelled right? the jump host has to know the name"
	case strings.Contains(text, "timed out"):
		out.Kind = KindTimeout
	case strings.Contains(text, "no route"), strings.Contains(text, "unreachable"):
		out.Kind = KindUnreachable
	}
	return nil, out
}

// atHop says that it was a jump host that failed.
func atHop(err error, host, jump string) error {
	var inner *ConnectError
	if !errors.As(err, &inner) {
		return &ConnectError{Host: host, Hop: jump, Kind: KindProxy, Err: err}
	}
	out := *inner
	out.Host, out.Hop = host, jump
	if inner.Hop != "" {
		out.Hop = inner.Hop
	}
	return &out
}

func canceled(err error) bool {
	var connect *ConnectError
	return errors.As(err, &connect) && connect.Kind == KindCanceled
}

// transport opens the connection that carries ssh.
func transport(ctx context.Context, s *sshconfig.Settings, via *hop) (net.Conn, error) {
	switch {
	case via != nil:
		return via.dial(ctx, s)
	case s.ProxyCommand != "":
		return wire.DialCommand(s.ProxyCommand)
	}
	return dialTCP(ctx, s)
}
