package remote

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

// settings are what ssh_config and the target say of one connection.
type settings struct {
	target Target // as the user named it
	name   string // of the target
	host   string // to connect to
	user   string
	port   int

	family       string // "tcp", "tcp4" or "tcp6"
	proxyCommand string // "": none
	jumps        []Target

	identity identitySettings
	trust    trustSettings

	timeout    time.Duration
	alive      time.Duration
	aliveCount int
}

// identitySettings say which keys to offer.
type identitySettings struct {
	agent    string // socket; "": none
	files    []string
	certs    []string
	only     bool // no other keys of the agent
	explicit bool // files were named by the configuration
}

// trustSettings say which host keys to accept.
type trustSettings struct {
	lookup string // host:port under which keys are recorded
	alias  bool   // lookup comes from HostKeyAlias
	user   []string
	global []string
	strict string // yes, ask or accept-new
	off    bool   // the configuration asks for no check at all
	hash   bool
}

func (s *settings) address() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// reader turns configuration values into settings; the first error sticks.
type reader struct {
	values *sshconfig.Values
	query  sshconfig.Query
	tokens sshconfig.Tokens
	err    error
}

// settings resolves a target by the configuration files.
func (d *Dialer) settings(ctx context.Context, target Target) (*settings, error) {
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	cfg, err := d.loadConfig()
	if err != nil {
		return nil, err
	}
	q := sshconfig.Query{Host: target.Name, User: target.User, Port: target.Port, LocalUser: localUser(), Home: homeDir()}
	values, err := cfg.Resolve(ctx, q)
	if err != nil {
		return nil, err
	}
	r := &reader{values: values, query: q}
	s := r.settings(target)
	s.timeout = cmp.Or(r.seconds("ConnectTimeout"), d.Timeout, defaultTimeout)
	s.alive = cmp.Or(r.seconds("ServerAliveInterval"), d.KeepAlive, defaultKeepAlive)
	return s, r.err
}

// checkTarget refuses names that a ProxyCommand or "Match exec" would hand to a
// shell with a meaning of their own; ssh does so too.
func checkTarget(t Target) error {
	odd := func(text string) bool {
		return strings.HasPrefix(text, "-") || strings.ContainsAny(text, "'`\"$\\;&<>|(){} \t\r\n\x00")
	}
	if t.Name == "" || odd(t.Name) {
		return fmt.Errorf("%q is not a host name", t.Name)
	}
	if odd(t.User) {
		return fmt.Errorf("%q is not a user name", t.User)
	}
	return nil
}

func (r *reader) settings(target Target) *settings {
	s := &settings{target: target, name: target.Name}
	s.host = r.expand("HostName", r.values.First("HostName", target.Name), sshconfig.Tokens{'h': target.Name})
	s.user = cmp.Or(target.User, r.values.First("User", r.query.LocalUser))
	s.port = cmp.Or(target.Port, r.number("Port"), 22)
	r.tokens = sshconfig.NewTokens(r.query, s.host, s.user, strconv.Itoa(s.port))
	r.tokens['k'] = r.values.First("HostKeyAlias", s.host)
	s.family = r.family()
	s.jumps, s.proxyCommand = r.proxy()
	if r.yes("ProxyUseFdpass") && s.proxyCommand != "" {
		r.fail("ProxyUseFdpass", "muster cannot take a connection over from a ProxyCommand")
	}
	s.identity = r.identity()
	s.trust = r.trust(s)
	s.aliveCount = cmp.Or(r.number("ServerAliveCountMax"), 3)
	return s
}

func (r *reader) fail(keyword, format string, args ...any) {
	if r.err == nil {
		r.err = r.values.Errorf(keyword, keyword+": "+format, args...)
	}
}

func (r *reader) expand(keyword, text string, tokens sshconfig.Tokens) string {
	out, err := sshconfig.Expand(text, tokens)
	if err != nil {
		r.fail(keyword, "%v", err)
	}
	return out
}

// path expands a file name: ${ENV}, ~ and percent tokens.
func (r *reader) path(keyword, text string) string {
	text, err := sshconfig.ExpandEnv(text)
	if err != nil {
		r.fail(keyword, "%v", err)
	}
	return sshconfig.ExpandTilde(r.expand(keyword, text, r.tokens), r.query.Home)
}

func (r *reader) number(keyword string) int {
	text := r.values.First(keyword, "0")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || (keyword == "Port" && n > 65535) {
		r.fail(keyword, "%q is not a usable number", text)
	}
	return n
}

// seconds reads a time such as 30, 30s or 1m30s; "none" is 0.
func (r *reader) seconds(keyword string) time.Duration {
	text := r.values.First(keyword, "none")
	if strings.EqualFold(text, "none") {
		return 0
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	d, err := time.ParseDuration(strings.ToLower(text))
	if err != nil || d < 0 {
		r.fail(keyword, "%q is not a time", text)
	}
	return d
}

func (r *reader) yes(keyword string) bool {
	text := strings.ToLower(r.values.First(keyword, "no"))
	return text == "yes" || text == "true"
}

func (r *reader) family() string {
	switch strings.ToLower(r.values.First("AddressFamily", "any")) {
	case "inet":
		return "tcp4"
	case "inet6":
		return "tcp6"
	}
	return "tcp"
}

// proxy reads ProxyJump and ProxyCommand, of which one at most is set.
func (r *reader) proxy() (jumps []Target, command string) {
	if command = r.values.First("ProxyCommand", "none"); !strings.EqualFold(command, "none") {
		return nil, r.expand("ProxyCommand", command, r.tokens)
	}
	list := r.values.First("ProxyJump", "none")
	if strings.EqualFold(list, "none") {
		return nil, ""
	}
	for _, text := range strings.Split(list, ",") {
		hop, err := ParseTarget(r.expand("ProxyJump", text, r.tokens))
		if err != nil {
			r.fail("ProxyJump", "%v", err)
		}
		jumps = append(jumps, hop)
	}
	return jumps, ""
}

// defaultIdentities are tried where the configuration names no key, best first.
var defaultIdentities = []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"}

func (r *reader) identity() identitySettings {
	s := identitySettings{only: r.yes("IdentitiesOnly"), agent: r.agent()}
	s.files = r.paths("IdentityFile")
	s.certs = r.paths("CertificateFile")
	s.explicit = len(r.values.All("IdentityFile")) > 0
	if !s.explicit {
		for _, name := range defaultIdentities {
			s.files = append(s.files, filepath.Join(r.query.Home, ".ssh", name))
		}
	}
	return s
}

// paths are the files of a keyword that accumulates, without "none".
func (r *reader) paths(keyword string) []string {
	var out []string
	for _, v := range r.values.All(keyword) {
		if !strings.EqualFold(v.Args[0], "none") {
			out = append(out, r.path(keyword, v.Args[0]))
		}
	}
	return out
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

func (r *reader) trust(s *settings) trustSettings {
	t := trustSettings{lookup: strings.ToLower(s.address()), hash: r.yes("HashKnownHosts")}
	if alias := r.values.First("HostKeyAlias", ""); alias != "" {
		// As in ssh, an alias stands alone: the port is not part of the name.
		t.lookup, t.alias = net.JoinHostPort(strings.ToLower(alias), "22"), true
	}
	t.user = r.files("UserKnownHostsFile", "~/.ssh/known_hosts", "~/.ssh/known_hosts2")
	t.global = r.files("GlobalKnownHostsFile", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
	t.strict = strings.ToLower(r.values.First("StrictHostKeyChecking", "ask"))
	switch t.strict {
	case "yes", "true":
		t.strict = "yes"
	case "accept-new":
	case "no", "off", "false":
		// A key that nobody looked at is not accepted: this is "ask", and said.
		t.strict, t.off = "ask", true
	default:
		t.strict = "ask"
	}
	return t
}

// files are the arguments of a keyword that lists files, without "none".
func (r *reader) files(keyword string, fallback ...string) []string {
	names := fallback
	if v, ok := r.values.Find(keyword); ok {
		names = v.Args
	}
	var out []string
	for _, name := range names {
		if !strings.EqualFold(name, "none") {
			out = append(out, r.path(keyword, name))
		}
	}
	return out
}

// ParseTarget reads [user@]host[:port], where an IPv6 address with a port stands
// in brackets, and the form ssh://[user@]host[:port].
func ParseTarget(text string) (Target, error) {
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "ssh://"), "/")
	var t Target
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		t.User, rest = rest[:at], rest[at+1:]
		if t.User == "" {
			return Target{}, fmt.Errorf("%q has no user before the @", text)
		}
	}
	host, port, err := splitPort(rest)
	if err != nil || host == "" || strings.HasPrefix(host, "-") {
		return Target{}, fmt.Errorf("%q is not [user@]host[:port]", text)
	}
	t.Name, t.Port = host, port
	return t, nil
}

func splitPort(text string) (string, int, error) {
	if strings.Count(text, ":") != 1 && !strings.HasPrefix(text, "[") {
		return text, 0, nil // a name, or an IPv6 address as it is
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return text[1 : len(text)-1], 0, nil
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err == nil && port == 0 {
		err = strconv.ErrRange
	}
	return host, int(port), err
}

// homeDir is HOME, which ssh_config's ~ stands for, or what the system says.
func homeDir() string {
	home, err := os.UserHomeDir()
	if err == nil {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return "/"
}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
