//go:build linux

package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// client is the .ssh of somebody who may log in to all hosts.
type client struct {
	dir        string
	key        string
	authorized string
}

func (b *Bed) newClient() (*client, error) {
	private, err := generateKey("ed25519")
	if err != nil {
		return nil, err
	}
	k, err := newHostKey("ed25519", private)
	if err != nil {
		return nil, err
	}
	b.ClientHome = filepath.Join(b.Dir, "client")
	dir := filepath.Join(b.ClientHome, ".ssh")
	b.SSHConfig = filepath.Join(dir, "config")
	return &client{dir: dir, key: private, authorized: k.public}, nil
}

// ClientEnv is this process's environment changed to that of the client: for
// running the launcher against the bed.
func (b *Bed) ClientEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "SSH_") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
	return append(env, "HOME="+b.ClientHome)
}

func (c *client) write(hosts []*Host) error {
	known, err := knownHosts(hosts)
	if err != nil {
		return err
	}
	return writeFiles(c.dir, 0o700, []file{
		{"id_ed25519", 0o600, c.key},
		{"id_ed25519.pub", 0o644, c.authorized},
		{"known_hosts", 0o600, known},
		{"config", 0o600, c.config(hosts)},
	})
}

// config has absolute paths only: OpenSSH resolves ~ by the password file.
func (c *client) config(hosts []*Host) string {
	var text strings.Builder
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
		fmt.Fprintf(&text, "Host %s\n  HostName %s\n", h.Name, h.Addr)
		if h.Port != 22 {
			fmt.Fprintf(&text, "  Port %d\n", h.Port)
		}
	}
	fmt.Fprintf(&text, "\nHost %s\n  User root\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n",
		strings.Join(names, " "), filepath.Join(c.dir, "id_ed25519"), filepath.Join(c.dir, "known_hosts"))
	return text.String()
}

func knownHosts(hosts []*Host) (string, error) {
	var text strings.Builder
	for _, h := range hosts {
		for _, k := range h.keys {
			if h.opts.KnownHostKeyTypes != nil && !slices.Contains(h.opts.KnownHostKeyTypes, k.kind) {
				continue
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k.public))
			if err != nil {
				return "", err
			}
			addr := knownhosts.Normalize(fmt.Sprintf("%s:%d", h.Addr, h.Port))
			text.WriteString(knownhosts.Line([]string{addr}, key) + "\n")
		}
	}
	return text.String(), nil
}

// writeHome makes a home as Debian's are, with a key that may log in.
func writeHome(home, authorized string) error {
	files := []file{{".ssh/authorized_keys", 0o600, authorized}}
	for _, name := range []string{"bashrc", "profile"} {
		text, err := os.ReadFile("/usr/share/base-files/dot." + name)
		if err == nil {
			files = append(files, file{"." + name, 0o644, string(text)})
		}
	}
	return writeFiles(home, 0o700, files)
}

// writeFiles writes files below dir, making it and their folders with that mode.
func writeFiles(dir string, mode os.FileMode, files []file) error {
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
			return err
		}
		os.Remove(path) // a link or another owner's file stays as it is elsewhere
		if err := os.WriteFile(path, []byte(f.Text), f.Mode); err != nil {
			return err
		}
	}
	return nil
}
