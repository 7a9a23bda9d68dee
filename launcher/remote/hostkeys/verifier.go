package hostkeys

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// UnknownError is a host whose key is on no record.
type UnknownError struct{ Key ssh.PublicKey }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("its %s host key %s is not known", Name(e.Key), ssh.FingerprintSHA256(e.Key))
}

// ChangedError is a host whose key differs from the record. Key is nil where
// the host no longer has a key of the recorded types.
type ChangedError struct {
	Key  ssh.PublicKey
	Want []knownhosts.KnownKey
}

func (e *ChangedError) Error() string {
	var where []string
	for _, k := range e.Want {
		where = append(where, fmt.Sprintf("%s:%d (%s %s)", k.Filename, k.Line, Name(k.Key), ssh.FingerprintSHA256(k.Key)))
	}
	known := strings.Join(where, ", ")
	if e.Key == nil {
		return "HOST KEY CHANGED: it no longer has a key of the types recorded at " + known
	}
	return fmt.Sprintf("HOST KEY CHANGED: it shows the %s key %s, recorded is %s", Name(e.Key), ssh.FingerprintSHA256(e.Key), known)
}

// Verifier checks one connection's host key. The handshake reports a refusal in
// its own words; Err keeps the reason.
type Verifier struct {
	Err error

	known    *knownHosts
	registry *Registry
	trust    sshconfig.Trust
	record   record
}

// Verifier looks up what is recorded of a host.
func (r *Registry) Verifier(t sshconfig.Trust) (*Verifier, error) {
	known, err := r.load(slices.Concat(t.User, t.Global))
	if err != nil {
		return nil, err
	}
	v := &Verifier{known: known, registry: r, trust: t}
	if v.record, err = known.find(t.Lookup); err != nil {
		return nil, err
	}
	if len(v.record.keys)+len(v.record.authorities) > 0 || t.Alias {
		return v, nil
	}
	return v, v.withoutPort()
}

// withoutPort takes over what is recorded for the bare name, as ssh does for a
// host on another port than 22 that has no record of its own.
func (v *Verifier) withoutPort() error {
	host, port, err := net.SplitHostPort(v.trust.Lookup)
	if err != nil || port == "22" {
		return err
	}
	bare, err := v.known.find(net.JoinHostPort(host, "22"))
	v.record.keys = bare.keys
	return err
}

// Verify is the handshake's callback.
func (v *Verifier) Verify(_ string, _ net.Addr, key ssh.PublicKey) error {
	v.Err = v.Judge(key)
	return v.Err
}

// Algorithms are the host key algorithms to offer.
func (v *Verifier) Algorithms() []string { return v.record.algorithms() }

// Recorded are the keys on record for the host, without those of authorities.
func (v *Verifier) Recorded() []knownhosts.KnownKey { return v.record.keys }

// Judge says whether a key is the host's: nil, an *UnknownError, a *ChangedError,
// a *knownhosts.RevokedError, or what is wrong with a certificate.
func (v *Verifier) Judge(key ssh.PublicKey) error {
	err := v.known.check(v.trust.Lookup, &net.TCPAddr{}, key)
	var mismatch *knownhosts.KeyError
	if err == nil || !errors.As(err, &mismatch) {
		return err
	}
	if v.registry.isAccepted(v.trust.Lookup, key) {
		return nil
	}
	own := v.recorded(mismatch.Want)
	if len(own) > 0 {
		return &ChangedError{key, own}
	}
	for _, bare := range v.record.keys {
		if string(bare.Key.Marshal()) == string(key.Marshal()) {
			return nil
		}
	}
	return &UnknownError{key}
}

// recorded leaves out the lines of certificate authorities: a host without a
// certificate is unknown to them, not changed.
func (v *Verifier) recorded(want []knownhosts.KnownKey) []knownhosts.KnownKey {
	var out []knownhosts.KnownKey
	for _, k := range want {
		if !v.known.authorities[place{k.Filename, k.Line}] {
			out = append(out, k)
		}
	}
	return out
}

// Name is a key's type as people call it.
func Name(key ssh.PublicKey) string {
	name := key.Type()
	if cert, ok := key.(*ssh.Certificate); ok {
		return Name(cert.Key) + " certificate"
	}
	for _, known := range []struct{ prefix, name string }{
		{"sk-ssh-ed25519", "ED25519-SK"}, {"sk-ecdsa", "ECDSA-SK"},
		{"ssh-ed25519", "ED25519"}, {"ecdsa", "ECDSA"}, {"ssh-rsa", "RSA"}, {"ssh-dss", "DSA"},
	} {
		if strings.HasPrefix(name, known.prefix) {
			return known.name
		}
	}
	return name
}
