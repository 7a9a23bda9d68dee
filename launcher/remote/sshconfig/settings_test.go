package sshconfig

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func settingsOf(t *testing.T, text string, q Query) (*Settings, error) {
	t.Helper()
	cfg, home, err := load(t, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Home, q.LocalUser = home, "me"
	values, err := cfg.Resolve(context.Background(), q)
	if err != nil {
		return nil, err
	}
	return values.Settings(q)
}

func TestDefaults(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	s, err := settingsOf(t, "", Query{Host: "GPU01"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Host != "GPU01" || s.User != "me" || s.Port != 22 || s.Network != "tcp" || s.Identity.Agent != "/run/agent" {
		t.Errorf("settings %+v", s)
	}
	if s.Trust.Lookup != "gpu01:22" || s.Trust.Strict != Ask || len(s.Trust.User) != 2 {
		t.Errorf("trust %+v", s.Trust)
	}
	if want := filepath.Join(s.Query.Home, ".ssh/id_ed25519"); s.Identity.Explicit || s.Identity.Files[0] != want {
		t.Errorf("identity %+v", s.Identity)
	}
}

func TestSettings(t *testing.T) {
	t.Setenv("KEYS", "/keys")
	s, err := settingsOf(t, `
HostName %h.example
Port 2200
User you
AddressFamily inet6
ConnectTimeout 1m30s
ServerAliveInterval 7
ServerAliveCountMax 9
IdentityFile ~/one
IdentityFile %d/two-%h-%r-%n
IdentityFile ${KEYS}/three
IdentityFile none
CertificateFile ~/cert
IdentityAgent ~/agent
IdentitiesOnly yes
HashKnownHosts yes
UserKnownHostsFile ~/a "~/b c"
GlobalKnownHostsFile none
StrictHostKeyChecking accept-new
ProxyJump x,you@y:2,ssh://z:3,[::1]:4
`, Query{Host: "gpu"})
	if err != nil {
		t.Fatal(err)
	}
	home := s.Query.Home
	want := &Settings{
		Query: s.Query, Host: "gpu.example", User: "you", Port: 2200, Network: "tcp6",
		Jumps: []Hop{{Host: "x"}, {Host: "y", User: "you", Port: 2}, {Host: "z", Port: 3}, {Host: "::1", Port: 4}},
		Identity: Identity{
			Agent: home + "/agent", Files: []string{home + "/one", home + "/two-gpu.example-you-gpu", "/keys/three"},
			Certificates: []string{home + "/cert"}, Only: true, Explicit: true,
		},
		Trust:   Trust{Lookup: "[gpu.example]:2200", User: []string{home + "/a", home + "/b c"}, Strict: AcceptNew, Hash: true},
		Timeout: 90 * time.Second, Alive: 7 * time.Second, AliveCount: 9,
	}
	want.Trust.Lookup = "gpu.example:2200"
	if !reflect.DeepEqual(s, want) {
		t.Errorf("settings\n%+v\nwant\n%+v", s, want)
	}
}

func TestTargetGoesFirst(t *testing.T) {
	s, err := settingsOf(t, "User you\nPort 1\n", Query{Host: "x", User: "root", Port: 7})
	if err != nil || s.User != "root" || s.Port != 7 {
		t.Errorf("settings %+v, %v", s, err)
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Port ssh", "config line 1: Port"},
		{"\nPort 70000", "config line 2: Port"},
		{"ConnectTimeout soon", "config line 1: ConnectTimeout"},
		{"HostName %x", "config line 1: HostName"},
		{"IdentityFile ${NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE"},
		{"ProxyJump @x", "config line 1: ProxyJump"},
		{"ProxyJump x:y", "config line 1: ProxyJump"},
		{"ProxyCommand nc\nProxyUseFdpass yes", "config line 2: ProxyUseFdpass"},
	} {
		if _, err := settingsOf(t, c.text, Query{Host: "x"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v", c.text, err)
		}
	}
}

// A name that reaches a shell through %h must mean nothing to it.
func TestNamesThatMeanSomethingToAShell(t *testing.T) {
	for _, q := range []Query{{Host: "-oProxyCommand=x"}, {Host: "a;b"}, {Host: "`id`"}, {Host: "a b"}, {Host: "$x"}, {Host: ""}, {Host: "a", User: "b'c"}, {Host: "a", User: "-l"}} {
		if _, err := settingsOf(t, "ProxyCommand nc %h %r", q); err == nil {
			t.Errorf("%+v was accepted", q)
		}
	}
	if _, err := settingsOf(t, "", Query{Host: "fe80::1%eth0"}); err != nil {
		t.Error(err)
	}
}
