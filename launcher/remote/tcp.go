package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// dialTCP opens the connection that carries ssh.
func dialTCP(ctx context.Context, s *sshconfig.Settings) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	return dialer.DialContext(ctx, s.Network, s.Address())
}

// dialError explains why no connection came about.
func dialError(ctx context.Context, s *sshconfig.Settings, err error) error {
	var inner *ConnectError
	if errors.As(err, &inner) {
		return err
	}
	out := &ConnectError{Host: s.Name(), Kind: KindUnreachable, Err: err}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && !dns.IsNotFound:
		out.Kind, out.Err = KindResolve, fmt.Errorf("look up the name %s: %w", s.Host, err)
		out.Hint = "does this machine's name service answer?"
	case errors.As(err, &dns):
		out.Kind = KindResolve
		out.Err = fmt.Errorf("the name %s was not found: %w", s.Host, err)
		out.Hint = "is it spelled right? names that only ssh knows stand in ~/.ssh/config"
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Kind = KindRefused
		out.Err = fmt.Errorf("nothing listens at %s: %w", s.Address(), syscall.ECONNREFUSED)
		out.Hint = "is sshd running there, and is that its port?"
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTooSlow):
		out.Kind, out.Err = KindCanceled, context.Cause(ctx)
	case ctx.Err() != nil || timedOut(err):
		out.Kind = KindTimeout
		out.Err = fmt.Errorf("no answer from %s within %s", s.Address(), s.Timeout)
		out.Hint = "is the host up, and does a firewall or VPN stand between?"
	default:
		out.Err = fmt.Errorf("cannot reach %s: %w", s.Address(), err)
	}
	return out
}

func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
