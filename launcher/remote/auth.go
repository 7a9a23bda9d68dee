package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// authError is a host that accepted none of the keys.
type authError struct {
	user    string
	methods []string // that the host accepts
	partial bool     // a key was accepted, and more is asked for
	tried   []string
	err     error // the server's last word, where it broke off
}

func (e *authError) Error() string {
	text := fmt.Sprintf("permission denied for user %s (the host accepts %s)", e.user, strings.Join(e.methods, ", "))
	switch {
	case e.partial:
		text += ": the key was accepted, but the host asks for more, which muster cannot give"
	case len(e.methods) > 0 && !slices.Contains(e.methods, "publickey"):
		text += ": it takes no keys"
	}
	if len(e.tried) == 0 {
		return text + "; there was no key to try"
	}
	text += "; keys tried: " + strings.Join(e.tried, ", ")
	if e.err != nil {
		text += "; " + strings.TrimPrefix(e.err.Error(), "ssh: handshake failed: ssh: ")
	}
	return text
}

// authentication offers keys during one handshake and keeps the story of it.
type authentication struct {
	offers  *offers
	canAsk  bool
	locked  *keyFile // a key that the host would take and that has to be opened
	methods []string
	partial bool
	reached bool // authentication began
}

// next is the handshake's callback: it hands out all keys not yet tried. It comes
// again when a signature failed, or the host asks for more.
func (a *authentication) next(ctx *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
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
func (a *authentication) opened() *keyFile {
	for _, o := range a.offers.list {
		if o.signErr == errLocked {
			return o.file
		}
	}
	return nil
}

// toOpen is a key whose passphrase would let the connection go on: one that the
// host accepts or, when all else has failed, one that cannot be shown before.
func (a *authentication) toOpen() *keyFile {
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

func (a *authentication) failure(user string, err error) *authError {
	e := &authError{user: user, methods: a.methods, partial: a.partial}
	left := 0
	for _, o := range a.offers.list {
		if o.tried {
			e.tried = append(e.tried, o.fate())
		} else {
			left++
		}
	}
	if left > 0 {
		e.tried = append(e.tried, fmt.Sprintf("%d more not tried", left))
	}
	for _, k := range a.offers.opaque {
		e.tried = append(e.tried, tilde(k.path)+" (encrypted, and there is no terminal to ask for its passphrase; add it to ssh-agent)")
	}
	e.tried = append(e.tried, a.offers.unfit...)
	if err != nil && strings.Contains(err.Error(), "disconnect") {
		e.err = err
	}
	return e
}

func (e *authError) hint(s *settings) string {
	if e.err != nil && strings.Contains(e.err.Error(), "Too many authentication failures") {
		return "the host counts every key that is shown: name the right one by IdentityFile in ~/.ssh/config, with IdentitiesOnly yes"
	}
	if e.partial || !slices.Contains(e.methods, "publickey") {
		return "muster logs in by keys only"
	}
	return "muster logs in by keys only: put yours on the host once by: ssh-copy-id " + sshName(s)
}
