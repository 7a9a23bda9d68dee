//go:build linux

package testbed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// hostKey is a key as sshd's files have it.
type hostKey struct {
	kind    string // rsa, ecdsa, ed25519
	private string
	public  string // one line of authorized_keys format
}

// keyKinds are the host keys that Debian's sshd has.
var keyKinds = []string{"rsa", "ecdsa", "ed25519"}

// hostKeys returns the keys of the host at that place of a bed.
func hostKeys(index int) ([]hostKey, error) {
	var keys []hostKey
	for _, kind := range keyKinds {
		private, err := cachedKey(kind, index)
		if err != nil {
			return nil, err
		}
		k, err := newHostKey(kind, private)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// newHostKey adds the public half to a private key.
func newHostKey(kind, private string) (hostKey, error) {
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return hostKey{}, fmt.Errorf("%s key: %w", kind, err)
	}
	return hostKey{kind, private, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}, nil
}

// cachedKey keeps RSA keys in the user's cache: making one takes longer than
// starting a host. The others are new each time.
func cachedKey(kind string, index int) (string, error) {
	if kind != "rsa" {
		return generateKey(kind)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return generateKey(kind)
	}
	path := filepath.Join(cache, "muster-tests", "hostkeys", fmt.Sprintf("rsa-%d", index))
	if text, err := os.ReadFile(path); err == nil {
		if _, err := ssh.ParsePrivateKey(text); err == nil {
			return string(text), nil
		}
	}
	text, err := generateKey(kind)
	if err == nil {
		store(path, text)
	}
	return text, err
}

// store writes a file of the cache as a whole; without a cache the next bed is
// slower, that is all.
func store(path, text string) {
	if os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	part := path + "." + randomHex(4)
	if os.WriteFile(part, []byte(text), 0o600) == nil {
		os.Rename(part, path)
	}
}

// generateKey returns a new private key in OpenSSH's format.
func generateKey(kind string) (string, error) {
	var key crypto.PrivateKey
	var err error
	switch kind {
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(key, "testbed")
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(block)), nil
}
