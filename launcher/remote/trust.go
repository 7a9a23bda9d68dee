package remote

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/muster-dev/muster/launcher/remote/hostkeys"
	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// accept decides about an unknown host key: it asks the user where the
// configuration lets it, and writes the key down. The handshake that met the key
// is over by then, so that no server waits for the user; another one follows and
// verifies the key like any other. false: nobody vouches for the key.
func (d *Dialer) accept(ctx context.Context, s *sshconfig.Settings, key ssh.PublicKey) (bool, error) {
	silent := s.Trust.Strict == sshconfig.AcceptNew
	if !silent && (s.Trust.Strict == sshconfig.Refuse || d.Prompter == nil) {
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
				s.Name(), hostkeys.Name(key), ssh.FingerprintSHA256(key))
		} else if yes, err := d.Prompter.Confirm(question(s, key)); err != nil || !yes {
			return false, err
		}
		d.record(s, key)
		return true, nil
	})
}

func (d *Dialer) isTrusted(s *sshconfig.Settings, key ssh.PublicKey) bool {
	v, err := d.hosts.Verifier(s.Trust)
	return err == nil && v.Judge(key) == nil
}

func (d *Dialer) record(s *sshconfig.Settings, key ssh.PublicKey) {
	if err := d.hosts.Accept(s.Trust, key); err != nil {
		d.notice("%s: its host key is accepted for now, but could not be recorded: %v", s.Name(), err)
	}
}

func question(s *sshconfig.Settings, key ssh.PublicKey) string {
	name := s.Name()
	if address := s.Address(); address != name {
		name += " (" + address + ")"
	}
	return fmt.Sprintf("The authenticity of host %s can't be established.\n%s key fingerprint is %s.\n"+
		"Are you sure you want to continue connecting?", name, hostkeys.Name(key), ssh.FingerprintSHA256(key))
}

// unknownHint is how to get an unknown key on record. Behind a jump host, or
// under an alias, only ssh itself records the right name.
func unknownHint(s *sshconfig.Settings, key ssh.PublicKey, direct bool) string {
	hint := recordHint(s, key, direct)
	if s.Trust.Off {
		hint += "; StrictHostKeyChecking no is not followed: muster talks only to hosts whose key was looked at"
	}
	return hint
}

func recordHint(s *sshconfig.Settings, key ssh.PublicKey, direct bool) string {
	if len(s.Trust.User) == 0 || s.Trust.User[0] == os.DevNull {
		return "UserKnownHostsFile keeps no record of hosts: let it name a file, and put the host's key there"
	}
	if !direct || s.Trust.Alias {
		return fmt.Sprintf("compare the fingerprint on the host (ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub), then accept it once by: "+
			"ssh -o StrictHostKeyChecking=ask %s true", hostKeyFile(key), sshName(s))
	}
	hash := ""
	if s.Trust.Hash {
		hash = "-H "
	}
	return fmt.Sprintf("compare the fingerprint on the host (ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub), then add it by: "+
		"ssh-keyscan %s-p %d -t %s %s >> %s", hostKeyFile(key), hash, s.Port, hostKeyFile(key), s.Host, sshconfig.Tilde(s.Trust.User[0]))
}

func hostKeyFile(key ssh.PublicKey) string {
	name, _, _ := strings.Cut(strings.ToLower(hostkeys.Name(key)), " ")
	return strings.ReplaceAll(name, "-sk", "")
}

func changedHint(s *sshconfig.Settings, e *hostkeys.ChangedError) string {
	name := knownhosts.Normalize(s.Trust.Lookup)
	return fmt.Sprintf("somebody may be in between, or the host was set up anew: ask who runs it, and only then remove the old key by: "+
		"ssh-keygen -R '%s' -f %s", name, sshconfig.Tilde(e.Want[0].Filename))
}

// sshName is how the ssh command is told the same target.
func sshName(s *sshconfig.Settings) string {
	name := s.Name()
	if s.Query.User != "" {
		name = s.Query.User + "@" + name
	}
	if s.Query.Port != 0 {
		name = fmt.Sprintf("-p %d %s", s.Query.Port, name)
	}
	return name
}
