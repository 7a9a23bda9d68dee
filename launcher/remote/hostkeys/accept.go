package hostkeys

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// Accept remembers a key that the user trusts, in the first of the user's files
// if it can. The error says that it is not on file.
func (r *Registry) Accept(t sshconfig.Trust, key ssh.PublicKey) error {
	r.accept(t.Lookup, key)
	if len(t.User) == 0 {
		return nil
	}
	return appendKey(t, key)
}

// appendKey adds a line to the first of the user's files.
func appendKey(t sshconfig.Trust, key ssh.PublicKey) error {
	name := knownhosts.Normalize(t.Lookup)
	line := knownhosts.Line([]string{name}, key)
	if t.Hash {
		line = knownhosts.HashHostname(name) + line[len(name):]
	}
	file := t.User[0]
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if unfinished(f) {
		line = "\n" + line
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// unfinished reports whether the last line of a file lacks its line end.
func unfinished(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}
