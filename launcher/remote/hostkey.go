package remote

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// unknownKeyError is a host whose key is on no record.
type unknownKeyError struct{ key ssh.PublicKey }

func (e *unknownKeyError) Error() string {
	return fmt.Sprintf("its %s host key %s is not known", keyName(e.key), ssh.FingerprintSHA256(e.key))
}

// changedKeyError is a host whose key differs from the record. key is nil where
// the host no longer has a key of the recorded types.
type changedKeyError struct {
	key  ssh.PublicKey
	want []knownhosts.KnownKey
}

func (e *changedKeyError) Error() string {
	var where []string
	for _, k := range e.want {
		where = append(where, fmt.Sprintf("%s:%d (%s %s)", k.Filename, k.Line, keyName(k.Key), ssh.FingerprintSHA256(k.Key)))
	}
	known := strings.Join(where, ", ")
	if e.key == nil {
		return "HOST KEY CHANGED: it no longer has a key of the types recorded at " + known
	}
	return fmt.Sprintf("HOST KEY CHANGED: it shows the %s key %s, recorded is %s", keyName(e.key), ssh.FingerprintSHA256(e.key), known)
}

// verifier checks one connection's host key. The handshake reports a refusal in
// its own words; err keeps the reason.
type verifier struct {
	known    *knownHosts
	registry *registry
	trust    trustSettings
	record   record
	err      error
}

func (d *Dialer) verifier(t trustSettings) (*verifier, error) {
	known, err := d.registry.load(append(append([]string{}, t.user...), t.global...))
	if err != nil {
		return nil, err
	}
	v := &verifier{known: known, registry: &d.registry, trust: t}
	if v.record, err = known.find(t.lookup); err != nil {
		return nil, err
	}
	if len(v.record.keys)+len(v.record.authorities) > 0 || t.alias {
		return v, nil
	}
	return v, v.withoutPort()
}

// withoutPort takes over what is recorded for the bare name, as ssh does for a
// host on another port than 22 that has no record of its own.
func (v *verifier) withoutPort() error {
	host, port, err := net.SplitHostPort(v.trust.lookup)
	if err != nil || port == "22" {
		return err
	}
	bare, err := v.known.find(net.JoinHostPort(host, "22"))
	v.record.keys = bare.keys
	return err
}

// verify is the handshake's callback.
func (v *verifier) verify(_ string, _ net.Addr, key ssh.PublicKey) error {
	v.err = v.judge(key)
	return v.err
}

func (v *verifier) judge(key ssh.PublicKey) error {
	err := v.known.check(v.trust.lookup, &net.TCPAddr{}, key)
	var mismatch *knownhosts.KeyError
	if err == nil || !errors.As(err, &mismatch) {
		return err
	}
	if v.registry.isAccepted(v.trust.lookup, key) {
		return nil
	}
	own := v.recorded(mismatch.Want)
	if len(own) > 0 {
		return &changedKeyError{key, own}
	}
	for _, bare := range v.record.keys {
		if string(bare.Key.Marshal()) == string(key.Marshal()) {
			return nil
		}
	}
	return &unknownKeyError{key}
}

// recorded leaves out the lines of certificate authorities: a host without a
// certificate is unknown to them, not changed.
func (v *verifier) recorded(want []knownhosts.KnownKey) []knownhosts.KnownKey {
	var out []knownhosts.KnownKey
	for _, k := range want {
		if !v.known.authorities[place{k.Filename, k.Line}] {
			out = append(out, k)
		}
	}
	return out
}

// keyName is a key's type as people call it.
func keyName(key ssh.PublicKey) string {
	name := key.Type()
	if cert, ok := key.(*ssh.Certificate); ok {
		return keyName(cert.Key) + " certificate"
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
