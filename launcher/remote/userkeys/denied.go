package userkeys

import (
	"fmt"
	"slices"
	"strings"
)

// DeniedError is a host that accepted none of the keys.
type DeniedError struct {
	user    string
	methods []string // that the host accepts
	partial bool     // a key was accepted, and more is asked for
	tried   []string
	err     error // the server's last word, where it broke off
}

func (e *DeniedError) Error() string {
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

// Denied says what became of the keys; err is how the handshake ended.
func (a *Login) Denied(user string, err error) *DeniedError {
	e := &DeniedError{user: user, methods: a.methods, partial: a.partial}
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
		e.tried = append(e.tried, k.Name()+" (encrypted, and there is no terminal to ask for its passphrase; add it to ssh-agent)")
	}
	e.tried = append(e.tried, a.offers.unfit...)
	if err != nil && strings.Contains(err.Error(), "disconnect") {
		e.err = err
	}
	return e
}

// Hint says what the user can do; target is the host as the ssh command is told it.
func (e *DeniedError) Hint(target string) string {
	if e.err != nil && strings.Contains(e.err.Error(), "Too many authentication failures") {
		return "the host counts every key that is shown: name the right one by IdentityFile in ~/.ssh/config, with IdentitiesOnly yes"
	}
	if e.partial || !slices.Contains(e.methods, "publickey") {
		return "muster logs in by keys only"
	}
	return "muster logs in by keys only: put yours on the host once by: ssh-copy-id " + target
}
