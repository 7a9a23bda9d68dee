package userkeys

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// Login offers keys during one handshake and keeps the story of it.
type Login struct {
	offers  *offers
	canAsk  bool
	locked  *File // a key that the host would take and that has to be opened
	methods []string
	partial bool
	reached bool // authentication began
}

// Login prepares for one handshake. canAsk says whether somebody can be asked for
// a passphrase. Close ends what it holds open.
func (r *Ring) Login(ctx context.Context, s sshconfig.Identity, canAsk bool) *Login {
	return &Login{offers: r.collect(ctx, s), canAsk: canAsk}
}

// Close ends the connection to the agent.
func (a *Login) Close() { a.offers.close() }

// Reached reports whether the handshake came as far as keys.
func (a *Login) Reached() bool { return a.reached }

// Next is the handshake's callback: it hands out all keys not yet tried. It comes
// again when a signature failed, or the host asks for more.
func (a *Login) Next(ctx *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	a.reached, a.methods = true, ctx.AllowedMethods
	a.partial = len(ctx.PartialSuccessMethods) > 0
	a.locked = a.opened()
	if a.locked != nil && a.canAsk {
		return nil, errLocked
	}
	var rest []ssh.Signer
	for _, o := range a.offers.list {
		if !o.tried {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 || !slices.Contains(ctx.AllowedMethods, "publickey") {
		return nil, errNoKeyLeft
	}
	return ssh.PublicKeys(rest...), nil
}

var errNoKeyLeft = errors.New("no key left to try")

// opened is the key that the host asked a signature of while it was locked.
func (a *Login) opened() *File {
	for _, o := range a.offers.list {
		if o.signErr == errLocked {
			return o.file
		}
	}
	return nil
}

// ToOpen is a key whose passphrase would let the connection go on: one that the
// host accepts or, when all else has failed, one that cannot be shown before. nil:
// there is none.
func (a *Login) ToOpen() *File {
	if !a.reached || !a.canAsk {
		return nil
	}
	if a.locked != nil {
		return a.locked
	}
	if len(a.offers.opaque) > 0 && slices.Contains(a.methods, "publickey") {
		return a.offers.opaque[0]
	}
	return nil
}
