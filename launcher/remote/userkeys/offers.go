package userkeys

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/muster-dev/muster/launcher/remote/hostkeys"
	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// offers is what one connection has to show, in ssh's order: certificates, the
// agent's keys that are configured, its other keys, keys on disk.
type offers struct {
	list   []*offer
	opaque []*File  // encrypted, and their public half is not known
	unfit  []string // keys that cannot be used, with the reason
	close  func()   // ends the connection to the agent
}

// collect gathers the offers of a connection.
func (r *Ring) collect(ctx context.Context, s sshconfig.Identity) *offers {
	o := &offers{close: func() {}}
	held := o.openAgent(ctx, s.Agent)
	var files []*File
	for _, path := range s.Files {
		files = append(files, r.get(path))
	}
	agentKeys := chooseAgentKeys(held, files, s.Only)
	for _, k := range files {
		o.addFile(k, held, s.Explicit)
	}
	o.list = append(agentKeys, o.list...)
	o.addCertificates(s.Certificates, files)
	return o
}

// openAgent lists the agent's keys. An agent that cannot be reached is noted.
func (o *offers) openAgent(ctx context.Context, socket string) []*offer {
	if socket == "" {
		return nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		o.unfit = append(o.unfit, fmt.Sprintf("ssh-agent at %s (%v)", socket, err))
		return nil
	}
	// An agent may wait for its user: a confirmation, or a touch.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	o.close = func() {
		stop()
		conn.Close()
	}
	return o.listAgent(agent.NewClient(conn), socket)
}

func (o *offers) listAgent(client agent.ExtendedAgent, socket string) []*offer {
	signers, err := client.Signers()
	if err != nil {
		o.unfit = append(o.unfit, fmt.Sprintf("ssh-agent at %s (%v)", socket, err))
		return nil
	}
	var out []*offer
	for _, signer := range signers {
		// The agent's own type hides certificates and the key's abilities.
		public, err := ssh.ParsePublicKey(signer.PublicKey().Marshal())
		if err != nil {
			continue
		}
		comment := ""
		if key, ok := signer.PublicKey().(*agent.Key); ok {
			comment = key.Comment
		}
		label := fmt.Sprintf("agent key %q %s %s", comment, hostkeys.Name(public), ssh.FingerprintSHA256(public))
		out = append(out, &offer{public: public, label: label, agentKey: signer})
	}
	return out
}

// chooseAgentKeys puts the keys that are configured first and, where no others
// may be shown, leaves those out.
func chooseAgentKeys(held []*offer, files []*File, only bool) []*offer {
	var first, others []*offer
	for _, file := range files {
		for _, o := range held {
			if sameKey(o.public, file.now().public) && !slices.Contains(first, o) {
				first = append(first, o)
			}
		}
	}
	for _, o := range held {
		if !slices.Contains(first, o) {
			others = append(others, o)
		}
	}
	if only {
		return first
	}
	return append(first, others...)
}

func (o *offers) addFile(k *File, held []*offer, explicit bool) {
	state := k.now()
	label := k.Name()
	if state.public != nil {
		label += " " + hostkeys.Name(state.public)
	}
	inAgent := slices.ContainsFunc(held, func(h *offer) bool { return sameKey(h.public, state.public) })
	switch {
	case inAgent:
	case state.reason == missing && !explicit:
	case state.reason != "":
		o.unfit = append(o.unfit, fmt.Sprintf("%s (%s)", label, state.reason))
	case state.public == nil:
		o.opaque = append(o.opaque, k)
	default:
		o.list = append(o.list, &offer{public: state.public, label: label, file: k})
	}
}

// addCertificates puts in front the certificates that belong to a key at hand.
func (o *offers) addCertificates(paths []string, files []*File) {
	var certs []*ssh.Certificate
	for _, path := range paths {
		cert, ok := readPublic(path).(*ssh.Certificate)
		if !ok {
			o.unfit = append(o.unfit, sshconfig.Tilde(path)+" (not a certificate)")
			continue
		}
		certs = append(certs, cert)
	}
	for _, k := range files {
		if k.cert != nil {
			certs = append(certs, k.cert)
		}
	}
	var front []*offer
	for _, cert := range certs {
		for _, have := range o.list {
			if bytes.Equal(have.public.Marshal(), cert.Key.Marshal()) {
				front = append(front, &offer{public: cert, label: have.label + " certificate", agentKey: have.agentKey, file: have.file})
				break
			}
		}
	}
	o.list = append(front, o.list...)
}

// sameKey compares keys; a certificate counts as the key it certifies.
func sameKey(a, b ssh.PublicKey) bool {
	if a == nil || b == nil {
		return false
	}
	return bytes.Equal(bareKey(a).Marshal(), bareKey(b).Marshal())
}

func bareKey(k ssh.PublicKey) ssh.PublicKey {
	if cert, ok := k.(*ssh.Certificate); ok {
		return cert.Key
	}
	return k
}
