// Package userkeys logs in with the user's keys: files, those of an agent, and
// certificates. It chooses as ssh does, opens an encrypted key at most once, and
// can say what became of each key. It asks nobody and starts no goroutine; who is
// to be asked for a passphrase is its caller's choice.
package userkeys

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// File is a private key on disk, shared by all connections of a ring so
// that it is read and decrypted once.
type File struct {
	path string
	cert *ssh.Certificate // beside it; may be nil
	pem  []byte           // of an encrypted key

	asking sync.Mutex // held while the user is asked
	mu     sync.Mutex // guards state
	state  keyState
}

// Name is the key's file as messages have it.
func (k *File) Name() string { return sshconfig.Tilde(k.path) }

// keyState is what is known of a key.
type keyState struct {
	public ssh.PublicKey // nil: not known before the key is decrypted
	signer ssh.Signer    // nil: encrypted, or only the public half is here
	locked bool          // encrypted, and worth asking for
	reason string        // why the key cannot be used, in words
}

var errLocked = errors.New("the key is encrypted")

// loadFile reads a key and what stands beside it; what is wrong with it
// becomes its reason.
func loadFile(path string) *File {
	k := &File{path: path, state: keyState{public: readPublic(path + ".pub")}}
	k.cert, _ = readPublic(path + "-cert.pub").(*ssh.Certificate)
	text, err := os.ReadFile(path)
	if err != nil {
		k.state.reason = readReason(err)
		return k
	}
	if reason := exposed(path); reason != "" {
		k.state.reason = reason
		return k
	}
	k.parse(text)
	return k
}

func (k *File) parse(text []byte) {
	signer, err := ssh.ParsePrivateKey(text)
	var missing *ssh.PassphraseMissingError
	switch {
	case err == nil:
		k.state.signer, k.state.public = signer, signer.PublicKey()
	case errors.As(err, &missing):
		k.pem, k.state.locked = text, true
		if missing.PublicKey != nil {
			k.state.public = missing.PublicKey
		}
	default:
		k.parsePublic(text, err)
	}
}

// parsePublic takes a file that is a public key, which chooses among the keys of
// an agent.
func (k *File) parsePublic(text []byte, err error) {
	public, _, _, _, publicErr := ssh.ParseAuthorizedKey(text)
	switch {
	case publicErr == nil:
		k.state.public, k.state.reason = public, "only the public half is here and no agent holds the other"
	case strings.Contains(string(text), "BEGIN ENCRYPTED PRIVATE KEY"):
		k.state.reason = "encrypted in a format that muster cannot open; add it to ssh-agent"
	default:
		k.state.reason = strings.TrimPrefix(err.Error(), "ssh: ")
	}
}

func readPublic(path string) ssh.PublicKey {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	return public
}

// missing is the reason of a file that does not exist.
const missing = "no such file"

func readReason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// exposed applies ssh's rule: a private key of the user's own that others may
// read is not used.
func exposed(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return readReason(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(owner.Uid) == os.Getuid() && info.Mode().Perm()&0o077 != 0 && !isPublic(path) {
		return fmt.Sprintf("others may read it (mode %04o); chmod 600", info.Mode().Perm())
	}
	return ""
}

func isPublic(path string) bool { return readPublic(path) != nil }

// now is what is known of the key at this moment.
func (k *File) now() keyState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// change updates the state of a key that is still locked.
func (k *File) change(update func(*keyState)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state.locked {
		update(&k.state)
	}
}

// Unlock asks for the passphrase, three times at most, unless that was done.
func (k *File) Unlock(ask func(question string) (string, error)) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	for tries := 0; tries < 3 && k.now().locked; tries++ {
		phrase, err := ask(fmt.Sprintf("Enter passphrase for key '%s':", k.Name()))
		if err != nil {
			return err
		}
		if phrase == "" {
			break
		}
		k.open(phrase)
	}
	k.change(func(s *keyState) { s.locked, s.reason = false, "encrypted, and its passphrase was not given" })
	return nil
}

func (k *File) open(phrase string) {
	signer, err := ssh.ParsePrivateKeyWithPassphrase(k.pem, []byte(phrase))
	if errors.Is(err, x509.IncorrectPasswordError) {
		return
	}
	k.change(func(s *keyState) {
		s.locked = false
		if err != nil {
			s.reason = strings.TrimPrefix(err.Error(), "ssh: ")
			return
		}
		s.signer, s.public = signer, signer.PublicKey()
	})
}
