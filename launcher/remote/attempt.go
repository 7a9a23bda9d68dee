package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/muster-dev/muster/launcher/remote/hostkeys"
	"github.com/muster-dev/muster/launcher/remote/sshconfig"
	"github.com/muster-dev/muster/launcher/remote/userkeys"
	"github.com/muster-dev/muster/launcher/remote/wire"
)

// remedy is what can be done about a failed attempt before the next one.
type remedy struct {
	trust   ssh.PublicKey  // ask whether to trust this host key
	open    *userkeys.File // ask for its passphrase
	dropped bool           // the server hung up before a word, as busy ones do
}

// maxDrops is how often a server may hang up without a word: sshd does so when
// more than MaxStartups logins are under way, which a launch on many hosts through
// one machine brings about by itself.
const maxDrops = 4

// pause waits a while that grows with n; false: ctx ended.
func pause(ctx context.Context, n int) bool {
	wait := time.Duration(n) * (100*time.Millisecond + rand.N(200*time.Millisecond))
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// Algorithms: elliptic curves first; finite-field groups cost milliseconds and
// are left for servers that have nothing else.
var keyExchanges = []string{
	ssh.KeyExchangeCurve25519, ssh.KeyExchangeMLKEM768X25519,
	ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384, ssh.KeyExchangeECDHP521,
	ssh.KeyExchangeDH16SHA512, ssh.KeyExchangeDH14SHA256,
}

// handshake is one attempt to log in.
type handshake struct {
	settings *sshconfig.Settings
	verifier *hostkeys.Verifier
	keys     *userkeys.Login
	conn     *wire.Conn
	direct   bool // no jump host or proxy command in between
}

// attempt makes one connection and logs in, within the time that is set. The
// jump host's connection has its own time.
func (d *Dialer) attempt(ctx context.Context, r *route) (*sshHost, remedy, error) {
	via, err := d.jump(ctx, r)
	if err != nil {
		return nil, remedy{}, err
	}
	h, remedy, err := d.login(ctx, r.settings, via)
	if err != nil {
		via.release()
	}
	return h, remedy, err
}

var errTooSlow = errors.New("the time to connect is over")

func (d *Dialer) login(ctx context.Context, s *sshconfig.Settings, via *hop) (*sshHost, remedy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errTooSlow)
	defer cancel()
	verifier, err := d.hosts.Verifier(s.Trust)
	if err != nil {
		return nil, remedy{}, &ConnectError{Host: s.Name(), Kind: KindConfig, Err: err}
	}
	raw, err := transport(ctx, s, via)
	if err != nil {
		return nil, remedy{}, dialError(ctx, s, err)
	}
	keys := d.keys.Login(ctx, s.Identity, d.Prompter != nil)
	defer keys.Close()
	hs := &handshake{
		settings: s, verifier: verifier, keys: keys, conn: wire.Watch(raw),
		direct: via == nil && s.ProxyCommand == "",
	}
	session := hs.run(ctx, via)
	if session.err != nil {
		failure, remedy := hs.failure(ctx, session.err)
		return nil, remedy, failure
	}
	return d.serve(s, hs.conn, session, via), remedy{}, nil
}

// session is a logged-in connection as the library hands it over.
type session struct {
	conn     ssh.Conn
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
	err      error
}

// run logs in. When the time is over the connection is closed, which ends the
// handshake too, except over a jump host that has fallen silent: then the
// handshake is left to end with the jump host's own connection.
func (hs *handshake) run(ctx context.Context, via *hop) session {
	stop := context.AfterFunc(ctx, func() { hs.conn.Close() })
	if via == nil {
		return hs.settle(ctx, hs.login(), stop)
	}
	done := make(chan session, 1)
	if !via.host.work.start(func() { done <- hs.login() }) {
		return session{err: via.host.lostError()}
	}
	select {
	case s := <-done:
		return hs.settle(ctx, s, stop)
	case <-ctx.Done():
		return session{err: errAbandoned}
	}
}

// errAbandoned is a handshake that still runs, and whose state is its own.
var errAbandoned = errors.New("the handshake was abandoned")

func (hs *handshake) login() session {
	conn, channels, requests, err := ssh.NewClientConn(hs.conn, hs.settings.Trust.Lookup, hs.config())
	return session{conn, channels, requests, err}
}

// settle gives up a login that came too late.
func (hs *handshake) settle(ctx context.Context, s session, stop func() bool) session {
	if !stop() && s.err == nil {
		s.conn.Close()
		s.err = context.Cause(ctx)
	}
	return s
}

func (hs *handshake) config() *ssh.ClientConfig {
	config := &ssh.ClientConfig{
		User:              hs.settings.User,
		HostKeyCallback:   hs.verifier.Verify,
		HostKeyAlgorithms: hs.verifier.Algorithms(),
		AuthCallback:      hs.keys.Next,
		ClientVersion:     "SSH-2.0-muster",
	}
	config.KeyExchanges = keyExchanges
	return config
}

// failure turns the handshake's error into one that says what to do.
func (hs *handshake) failure(ctx context.Context, err error) (*ConnectError, remedy) {
	out := &ConnectError{Host: hs.settings.Name(), Kind: KindHandshake}
	var fix remedy
	switch {
	case err == errAbandoned:
		out.Kind, out.Hint, out.Err = hs.late(ctx)
	case hs.verifier.Err != nil:
		hs.keyFailure(out, &fix)
	case hs.noCommonKey(err):
		changed := &hostkeys.ChangedError{Want: hs.verifier.Recorded()}
		out.Kind, out.Err, out.Hint = KindChangedKey, changed, changedHint(hs.settings, changed)
	case ctx.Err() != nil:
		out.Kind, out.Hint, out.Err = hs.late(ctx)
	case hs.keys.Reached():
		denied := hs.keys.Denied(hs.settings.User, err)
		fix.open = hs.keys.ToOpen()
		out.Kind, out.Err, out.Hint = KindAuth, denied, denied.Hint(sshName(hs.settings))
	default:
		hs.broken(out, &fix, err)
	}
	return out, fix
}

func (hs *handshake) keyFailure(out *ConnectError, fix *remedy) {
	s := hs.settings
	out.Err = hs.verifier.Err
	var unknown *hostkeys.UnknownError
	var changed *hostkeys.ChangedError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(out.Err, &unknown):
		fix.trust = unknown.Key
		out.Kind, out.Hint = KindUnknownKey, unknownHint(s, unknown.Key, hs.direct)
	case errors.As(out.Err, &changed):
		out.Kind, out.Hint = KindChangedKey, changedHint(s, changed)
	case errors.As(out.Err, &revoked):
		out.Kind, out.Hint = KindRevokedKey, "do not connect before you know why"
		out.Err = fmt.Errorf("its host key is marked @revoked at %s:%d: %w", revoked.Revoked.Filename, revoked.Revoked.Line, out.Err)
	default:
		out.Kind = KindUnknownKey
		out.Err = fmt.Errorf("its host certificate is not accepted: %w", out.Err)
	}
}

// noCommonKey: the host has no key of the recorded types any more.
func (hs *handshake) noCommonKey(err error) bool {
	var negotiation *ssh.AlgorithmNegotiationError
	return errors.As(err, &negotiation) && strings.Contains(negotiation.What, "host key") && len(hs.verifier.Recorded()) > 0
}

// late explains an attempt that ran out of time.
func (hs *handshake) late(ctx context.Context) (kind Kind, hint string, err error) {
	s := hs.settings
	switch {
	case !errors.Is(context.Cause(ctx), errTooSlow):
		return KindCanceled, "", context.Cause(ctx)
	case s.ProxyCommand != "":
		return KindTimeout, "", fmt.Errorf("no login at %s within %s through the ProxyCommand%s", s.Address(), s.Timeout, said(hs.conn.Complaint()))
	case hs.conn.Silent():
		return KindTimeout, "is that an ssh server, and is the host overloaded?",
			fmt.Errorf("%s accepted the connection and said nothing for %s", s.Address(), s.Timeout)
	}
	return KindTimeout, "a slow name service or home directory there? ConnectTimeout in ~/.ssh/config gives it more time",
		fmt.Errorf("login at %s was not done within %s", s.Address(), s.Timeout)
}

// broken explains a server that hung up, or that is none.
func (hs *handshake) broken(out *ConnectError, fix *remedy, err error) {
	greeting, address := hs.conn.Greeting(), hs.settings.Address()
	switch complaint := hs.conn.Complaint(); {
	case strings.HasPrefix(greeting, "SSH-"):
		out.Err = fmt.Errorf("handshake with %s: %s", address, strings.TrimPrefix(err.Error(), "ssh: handshake failed: "))
	case complaint != "":
		out.Kind, out.Err = KindProxy, fmt.Errorf("the ProxyCommand failed: %s", complaint)
	case greeting == "" && hungUp(err), strings.Contains(greeting, "MaxStartups"), strings.Contains(greeting, "Not allowed"):
		fix.dropped = true
		out.Err = fmt.Errorf("%s hung up before the handshake%s", address, said(greeting))
		out.Hint = "too many logins at once (MaxStartups in its sshd_config), or this address is blocked there"
	default:
		out.Err = fmt.Errorf("%s does not speak ssh%s", address, said(greeting))
		out.Hint = "is that the right port?"
	}
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

func said(greeting string) string {
	if greeting == "" {
		return ""
	}
	return fmt.Sprintf(", saying %q", greeting)
}
