package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// accept decides about an unknown host key: it asks the user where the
// configuration lets it, and writes the key down. The handshake that met the key
// is over by then, so that no server waits for the user; another one follows and
// verifies the key like any other. false: nobody vouches for the key.
func (d *Dialer) accept(ctx context.Context, s *settings, key ssh.PublicKey) (bool, error) {
	silent := s.trust.strict == "accept-new"
	if !silent && (s.trust.strict == "yes" || d.Prompter == nil) {
		return false, nil
	}
	if err := d.asking.begin(ctx); err != nil {
		return false, err
	}
	return ask(ctx, &d.asking, func() (bool, error) {
		if d.isTrusted(s, key) {
			return true, nil // accepted meanwhile, for another target that is the same host
		}
		if silent {
			d.notice("%s: its %s host key %s is new and was recorded (StrictHostKeyChecking accept-new)",
				s.name, keyName(key), ssh.FingerprintSHA256(key))
		} else if yes, err := d.Prompter.Confirm(question(s, key)); err != nil || !yes {
			return false, err
		}
		d.record(s, key)
		return true, nil
	})
}

func (d *Dialer) isTrusted(s *settings, key ssh.PublicKey) bool {
	v, err := d.verifier(s.trust)
	return err == nil && v.judge(key) == nil
}

// record remembers an accepted key, in the first of the user's files if it can.
func (d *Dialer) record(s *settings, key ssh.PublicKey) {
	d.registry.accept(s.trust.lookup, key)
	if len(s.trust.user) == 0 {
		return
	}
	if err := appendKnownHost(s.trust, key); err != nil {
		d.notice("%s: its host key is accepted for now, but could not be recorded: %v", s.name, err)
	}
}

func question(s *settings, key ssh.PublicKey) string {
	name := s.name
	if address := s.address(); address != name {
		name += " (" + address + ")"
	}
	return fmt.Sprintf("The authenticity of host %s can't be established.\n%s key fingerprint is %s.\n"+
		"Are you sure you want to continue connecting (yes/no)? ", name, keyName(key), ssh.FingerprintSHA256(key))
}

// appendKnownHost adds a line to the first of the user's files.
func appendKnownHost(t trustSettings, key ssh.PublicKey) error {
	name := knownhosts.Normalize(t.lookup)
	line := knownhosts.Line([]string{name}, key)
	if t.hash {
		line = knownhosts.HashHostname(name) + line[len(name):]
	}
	file := t.user[0]
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

// unknownHint is how to get an unknown key on record. Behind a jump host, or
// under an alias, only ssh itself records the right name.
func unknownHint(s *settings, key ssh.PublicKey, direct bool) string {
	hint := recordHint(s, key, direct)
	if s.trust.off {
		hint += "; StrictHostKeyChecking no is not followed: muster talks only to hosts whose key was looked at"
	}
	return hint
}

func recordHint(s *settings, key ssh.PublicKey, direct bool) string {
	if len(s.trust.user) == 0 || s.trust.user[0] == os.DevNull {
		return "UserKnownHostsFile keeps no record of hosts: let it name a file, and put the host's key there"
	}
	if !direct || s.trust.alias {
		return fmt.Sprintf("compare the fingerprint on the host (ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub), then accept it once by: "+
			"ssh -o StrictHostKeyChecking=ask %s true", hostKeyFile(key), sshName(s))
	}
	hash := ""
	if s.trust.hash {
		hash = "-H "
	}
	return fmt.Sprintf("compare the fingerprint on the host (ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub), then add it by: "+
		"ssh-keyscan %s-p %d -t %s %s >> %s", hostKeyFile(key), hash, s.port, hostKeyFile(key), s.host, tilde(s.trust.user[0]))
}

func hostKeyFile(key ssh.PublicKey) string {
	name, _, _ := strings.Cut(strings.ToLower(keyName(key)), " ")
	return strings.ReplaceAll(name, "-sk", "")
}

func changedHint(s *settings, e *changedKeyError) string {
	name := knownhosts.Normalize(s.trust.lookup)
	return fmt.Sprintf("somebody may be in between, or the host was set up anew: ask who runs it, and only then remove the old key by: "+
		"ssh-keygen -R '%s' -f %s", name, tilde(e.want[0].Filename))
}

// sshName is how the ssh command is told the same target.
func sshName(s *settings) string {
	name := s.name
	if s.target.User != "" {
		name = s.target.User + "@" + name
	}
	if s.target.Port != 0 {
		name = fmt.Sprintf("-p %d %s", s.target.Port, name)
	}
	return name
}

// tilde shortens a path of the home directory for messages.
func tilde(path string) string {
	if rest, ok := strings.CutPrefix(path, homeDir()+"/"); ok && !strings.ContainsAny(rest, " '\"$") {
		return "~/" + rest
	}
	return path
}
