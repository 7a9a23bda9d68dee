package sshconfig

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settings are what the configuration and the query say of one connection.
type Settings struct {
	Query Query
	Host  string // to connect to
	User  string
	Port  int

	Network      string // "tcp", "tcp4" or "tcp6"
	ProxyCommand string // "": none
	Jumps        []Hop

	Identity Identity
	Trust    Trust

	// 0: not set.
	Timeout    time.Duration
	Alive      time.Duration
	AliveCount int
}

// Identity says which keys to log in with.
type Identity struct {
	Agent        string // socket; "": none
	Files        []string
	Certificates []string
	Only         bool // no other keys of the agent
	Explicit     bool // Files were named by the configuration
}

// Strict says what to do about a host whose key is on no record.
type Strict int

const (
	Ask       Strict = iota
	Refuse           // StrictHostKeyChecking yes
	AcceptNew        // StrictHostKeyChecking accept-new
)

// Trust says which host keys to accept.
type Trust struct {
	Lookup string // host:port under which keys are recorded
	Alias  bool   // Lookup comes from HostKeyAlias
	User   []string
	Global []string
	Strict Strict
	Off    bool // the configuration asks for no check at all, which is read as Ask
	Hash   bool
}

// Name is the host as the user named it.
func (s *Settings) Name() string { return s.Query.Host }

// Address is where to connect.
func (s *Settings) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// Settings are the values in the form in which they are used.
func (v *Values) Settings(q Query) (*Settings, error) {
	r := &reader{values: v, query: q}
	s := r.settings()
	return s, r.err
}

func (r *reader) settings() *Settings {
	q := r.query
	s := &Settings{Query: q}
	s.Host = q.Host
	if name := r.values.First("HostName", ""); name != "" {
		s.Host = r.expand("HostName", name, Tokens{'h': q.Host})
	}
	s.User = cmp.Or(q.User, r.values.First("User", q.LocalUser))
	s.Port = cmp.Or(q.Port, r.number("Port"), 22)
	r.tokens = NewTokens(q, s.Host, s.User, strconv.Itoa(s.Port))
	r.tokens['k'] = r.values.First("HostKeyAlias", s.Host)
	s.Network = r.network()
	s.Jumps, s.ProxyCommand = r.proxy()
	if r.yes("ProxyUseFdpass") && s.ProxyCommand != "" {
		r.fail("ProxyUseFdpass", "muster cannot take a connection over from a ProxyCommand")
	}
	s.Identity = r.identity()
	s.Trust = r.trust(s)
	s.Timeout = r.seconds("ConnectTimeout")
	s.Alive = r.seconds("ServerAliveInterval")
	s.AliveCount = r.number("ServerAliveCountMax")
	return s
}

func (r *reader) network() string {
	switch strings.ToLower(r.values.First("AddressFamily", "any")) {
	case "inet":
		return "tcp4"
	case "inet6":
		return "tcp6"
	}
	return "tcp"
}

// proxy reads ProxyJump and ProxyCommand, of which one at most is set.
func (r *reader) proxy() (jumps []Hop, command string) {
	if command = r.values.First("ProxyCommand", "none"); !strings.EqualFold(command, "none") {
		return nil, r.expand("ProxyCommand", command, r.tokens)
	}
	list := r.values.First("ProxyJump", "none")
	if strings.EqualFold(list, "none") {
		return nil, ""
	}
	for _, text := range strings.Split(list, ",") {
		hop, err := parseHop(r.expand("ProxyJump", text, r.tokens))
		if err != nil {
			r.fail("ProxyJump", "%v", err)
		}
		jumps = append(jumps, hop)
	}
	return jumps, ""
}

// defaultIdentities are tried where the configuration names no key, best first.
var defaultIdentities = []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"}

func (r *reader) identity() Identity {
	s := Identity{Only: r.yes("IdentitiesOnly"), Agent: r.agent()}
	s.Files = r.paths("IdentityFile")
	s.Certificates = r.paths("CertificateFile")
	s.Explicit = len(r.values.All("IdentityFile")) > 0
	if !s.Explicit {
		for _, name := range defaultIdentities {
			s.Files = append(s.Files, filepath.Join(r.query.Home, ".ssh", name))
		}
	}
	return s
}

func (r *reader) agent() string {
	text := r.values.First("IdentityAgent", "SSH_AUTH_SOCK")
	switch {
	case strings.EqualFold(text, "none"):
		return ""
	case text == "SSH_AUTH_SOCK":
		return os.Getenv("SSH_AUTH_SOCK")
	case strings.HasPrefix(text, "$") && !strings.HasPrefix(text, "${"):
		return os.Getenv(text[1:])
	}
	return r.path("IdentityAgent", text)
}

func (r *reader) trust(s *Settings) Trust {
	t := Trust{Lookup: strings.ToLower(s.Address()), Hash: r.yes("HashKnownHosts")}
	if alias := r.values.First("HostKeyAlias", ""); alias != "" {
		// As in ssh, an alias stands alone: the port is not part of the name.
		t.Lookup, t.Alias = net.JoinHostPort(strings.ToLower(alias), "22"), true
	}
	t.User = r.files("UserKnownHostsFile", "~/.ssh/known_hosts", "~/.ssh/known_hosts2")
	t.Global = r.files("GlobalKnownHostsFile", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
	switch strings.ToLower(r.values.First("StrictHostKeyChecking", "ask")) {
	case "yes", "true":
		t.Strict = Refuse
	case "accept-new":
		t.Strict = AcceptNew
	case "no", "off", "false":
		// A key that nobody looked at is not accepted: this is Ask, and said.
		t.Off = true
	}
	return t
}
