// Package hostkeys says whether a host is the one that was met before: it reads
// known_hosts files, judges the key that a host shows, and writes down those that
// the user accepts. Matching is x/crypto/ssh/knownhosts'; this package adds what
// that one lacks, above all which types of keys to ask a host for. It asks nobody
// and starts no goroutine.
package hostkeys

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knownHosts is the record of host keys in a list of files.
type knownHosts struct {
	check       ssh.HostKeyCallback
	authorities map[place]bool // lines that name a certificate authority
}

type place struct {
	file string
	line int
}

// loadKnownHosts reads those of the files that exist.
func loadKnownHosts(files []string) (*knownHosts, error) {
	k := &knownHosts{authorities: map[place]bool{}}
	var there []string
	for _, file := range files {
		err := k.findAuthorities(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		there = append(there, file)
	}
	check, err := knownhosts.New(there...)
	if err != nil {
		return nil, err
	}
	k.check = check
	return k, nil
}

func (k *knownHosts) findAuthorities(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if bytes.HasPrefix(bytes.TrimSpace(lines.Bytes()), []byte("@cert-authority")) {
			k.authorities[place{file, n}] = true
		}
	}
	return lines.Err()
}

// record is what the files hold of one host.
type record struct {
	keys        []knownhosts.KnownKey
	authorities []knownhosts.KnownKey
}

// find looks a host up. knownhosts has no such question; it tells all it wants
// when shown a key that no host can have.
func (k *knownHosts) find(lookup string) (record, error) {
	var r record
	var mismatch *knownhosts.KeyError
	err := k.check(lookup, &net.TCPAddr{}, impossibleKey{})
	if !errors.As(err, &mismatch) {
		return r, fmt.Errorf("look up the host key of %s: %w", lookup, err)
	}
	for _, known := range mismatch.Want {
		if k.authorities[place{known.Filename, known.Line}] {
			r.authorities = append(r.authorities, known)
		} else {
			r.keys = append(r.keys, known)
		}
	}
	return r, nil
}

// impossibleKey is a public key that no host has.
type impossibleKey struct{}

func (impossibleKey) Type() string                        { return "none" }
func (impossibleKey) Marshal() []byte                     { return []byte("no host has this key") }
func (impossibleKey) Verify([]byte, *ssh.Signature) error { return errors.New("no such key") }

// Host key algorithms in OpenSSH's order.
var (
	plainAlgorithms = []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	}
	certAlgorithms = []string{
		ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
		ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
	}
)

// algorithms are what to offer a host: exactly the types on record, because the
// server picks from the offer, and a key of another type reads as a changed one.
func (r record) algorithms() []string {
	var out []string
	if len(r.authorities) > 0 {
		out = slices.Clone(certAlgorithms)
	}
	if len(r.keys) == 0 {
		return append(out, plainAlgorithms...)
	}
	for _, algorithm := range plainAlgorithms {
		if slices.ContainsFunc(r.keys, func(k knownhosts.KnownKey) bool { return signs(k.Key.Type(), algorithm) }) {
			out = append(out, algorithm)
		}
	}
	return out
}

// signs reports whether a key of a type is used under a host key algorithm.
func signs(keyType, algorithm string) bool {
	if keyType == ssh.KeyAlgoRSA {
		return strings.HasPrefix(algorithm, "rsa-sha2-")
	}
	return keyType == algorithm
}
