package sshconfig

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// load writes files below a home directory; the first one is the configuration.
func load(t testing.TB, text string, more map[string]string) (*Config, string, error) {
	t.Helper()
	home := t.TempDir()
	files := map[string]string{".ssh/config": text}
	for name, content := range more {
		files[name] = content
	}
	for name, content := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(home, filepath.Join(home, ".ssh/config"), filepath.Join(home, "system"))
	return cfg, home, err
}

func resolve(t testing.TB, text string, more map[string]string, q Query) *Values {
	t.Helper()
	cfg, home, err := load(t, text, more)
	if err != nil {
		t.Fatal(err)
	}
	q.Home = home
	if q.LocalUser == "" {
		q.LocalUser = "me"
	}
	values, err := cfg.Resolve(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// values are rows of TestValues, which are put to OpenSSH as well. ME is the
// local user.
var values = []struct{ name, text, host, keyword, want string }{
	{"the first value wins", "Port 1\nPort 2", "a", "port", "1"},
	{"blocks in order", "Host a\nPort 1\nHost *\nPort 2", "a", "port", "1"},
	{"another host", "Host a\nPort 1\nHost *\nPort 2", "b", "port", "2"},
	{"several patterns", "Host x b*\nPort 1", "bee", "port", "1"},
	{"question mark", "Host gpu0?\nPort 1", "gpu01", "port", "1"},
	{"question mark needs a character", "Host gpu0?\nPort 1", "gpu0", "port", ""},
	{"negation", "Host !gpu03 gpu*\nPort 1", "gpu03", "port", ""},
	{"negation of another", "Host gpu* !gpu03\nPort 1", "gpu04", "port", "1"},
	{"negation alone matches nothing", "Host !gpu03\nPort 1", "gpu04", "port", ""},
	{"equals sign", "Port=1", "a", "port", "1"},
	{"equals sign with blanks", "Port \t= \t1", "a", "port", "1"},
	{"one equals sign only", "User==x", "a", "user", "=x"},
	{"keyword in any case", "pOrT 1", "a", "Port", "1"},
	{"quotes", `User "two words"`, "a", "user", "two words"},
	{"single quotes", `User 'it"s'`, "a", "user", `it"s`},
	{"escaped quote", `User "a\"b"`, "a", "user", `a"b`},
	{"escaped blank", `User a\ b`, "a", "user", "a b"},
	{"backslash before another character", `User DOMAIN\me`, "a", "user", `DOMAIN\me`},
	{"comment at the end", "Port 1 # one", "a", "port", "1"},
	{"hash within a word", "User a#b", "a", "user", "a#b"},
	{"indented, with a carriage return", "  Port 1\r", "a", "port", "1"},
	{"quoted pattern", "Host \"a\"\nPort 1", "a", "port", "1"},
	{"command is taken as it stands", `ProxyCommand ssh "x  y" # no comment`, "a", "proxycommand", `ssh "x  y" # no comment`},
	{"command after an equals sign", `ProxyCommand=nc %h %p`, "a", "proxycommand", "nc %h %p"},
	{"a jump host keeps a later command out", "ProxyJump b\nProxyCommand nc", "a", "proxycommand", ""},
	{"a command keeps a later jump host out", "ProxyCommand nc\nProxyJump b", "a", "proxyjump", ""},
	{"match all", "Match all\nPort 1", "a", "port", "1"},
	{"match host", "Match host a,b\nPort 1", "b", "port", "1"},
	{"match host sees HostName", "HostName c\nMatch host c\nPort 1", "a", "port", "1"},
	{"match host with %h", "HostName %h.example\nMatch host a.example\nPort 1", "a", "port", "1"},
	{"match originalhost does not", "HostName c\nMatch originalhost c\nPort 1", "a", "port", ""},
	{"match negated pattern", "Match host *,!a\nPort 1", "a", "port", ""},
	{"match negated criterion", "Match !host b\nPort 1", "a", "port", "1"},
	{"match several criteria", "Match host a user nobody\nPort 1", "a", "port", ""},
	{"match user", "User you\nMatch user you\nPort 1", "a", "port", "1"},
	{"match user falls back to the local one", "Match user ME\nPort 1", "a", "port", "1"},
	{"match localuser", "Match localuser ME\nPort 1", "a", "port", "1"},
	{"match with equals sign", "Match host=a\nPort 1", "a", "port", "1"},
	{"match exec that succeeds", `Match exec "test %n = a"` + "\nPort 1", "a", "port", "1"},
	{"match exec that fails", `Match exec "test %n = b"` + "\nPort 1", "a", "port", ""},
	{"match exec runs only if the rest holds", `Match host b exec "exit 0"` + "\nPort 1", "a", "port", ""},
	{"match tagged", "Tag x\nMatch tagged x\nPort 1", "a", "port", "1"},
	{"match localnetwork", "Match localnetwork 127.0.0.0/8\nPort 1", "a", "port", "1"},
	{"match localnetwork elsewhere", "Match localnetwork 203.0.113.0/24\nPort 1", "a", "port", ""},
	{"match canonical is for a later pass", "Match canonical\nPort 1", "a", "port", ""},
	{"match final all", "Match final all\nPort 1", "a", "port", "1"},
	{"match final comes last", "Match final all\nPort 1\nMatch all\nPort 2", "a", "port", "2"},
	{"not final", "Match !final all\nPort 1", "a", "port", "1"},
	{"the final pass sees HostName", "Host a\nHostName b\nHost b\nPort 1\nMatch final all\nUser x", "a", "port", "1"},
	{"unknown keywords are kept", "UseKeychain yes", "a", "usekeychain", "yes"},
}

func TestValues(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range values {
		t.Run(c.name, func(t *testing.T) {
			text := strings.ReplaceAll(c.text, "ME", me.Username)
			q := Query{Host: c.host, LocalUser: me.Username}
			if got := resolve(t, text, nil, q).First(c.keyword, ""); got != c.want {
				t.Errorf("%s is %q, want %q", c.keyword, got, c.want)
			}
		})
	}
}

// TestOpenSSHAgrees asks ssh itself what it makes of the rows that it can show.
func TestOpenSSHAgrees(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("ssh is not here: apt-get install openssh-client")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{"port": "22", "user": me.Username}
	newer := []string{"Tag", "localnetwork", "UseKeychain", "host=a"} // than OpenSSH 9.2, or not ssh's own
	for _, c := range values {
		if slices.ContainsFunc(newer, func(word string) bool { return strings.Contains(c.text, word) }) {
			continue
		}
		keyword := strings.ToLower(c.keyword)
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want == "" {
				want = defaults[keyword]
			}
			got := askSSH(t, strings.ReplaceAll(c.text, "ME", me.Username), c.host, keyword)
			if got != want {
				t.Errorf("ssh says %s %q, we say %q", keyword, got, want)
			}
		})
	}
}

func askSSH(t *testing.T, text, host, keyword string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ssh", "-G", "-F", file, host).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh -G: %v: %s", err, out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if value, found := strings.CutPrefix(line, keyword+" "); found {
			return value
		}
	}
	return ""
}

func TestWhatTheTargetSaysGoesFirst(t *testing.T) {
	text := "Match user root\nProxyJump a\nMatch exec \"test %p = 7\"\nTag seven"
	v := resolve(t, text, nil, Query{Host: "x", User: "root", Port: 7})
	if v.First("proxyjump", "") != "a" || v.First("tag", "") != "seven" {
		t.Error("user and port of the target are not seen")
	}
}

func TestInclude(t *testing.T) {
	files := map[string]string{
		".ssh/conf.d/1": "Host a\nPort 1\n", ".ssh/conf.d/2": "Port 2\nHost b\nUser b\n", ".ssh/plain": "Port 3\n", "home": "Port 4\n",
	}
	for _, c := range []struct{ name, text, host, keyword, want string }{
		{"relative to .ssh", "Include plain", "a", "port", "3"},
		{"from home", "Include ~/home", "a", "port", "4"},
		{"pattern, in order", "Include conf.d/*", "a", "port", "1"},
		{"pattern, another host", "Include conf.d/*", "x", "port", "2"},
		{"several files", "Include plain ~/home", "a", "port", "3"},
		{"absent", "Include nothing/*\nPort 9", "a", "port", "9"},
		{"within a block that holds", "Host a\nInclude plain", "a", "port", "3"},
		{"within a block that does not hold", "Host b\nInclude plain conf.d/1", "a", "port", ""},
		{"the block goes on behind it", "Host a\nInclude conf.d/2\nUser z", "a", "user", "z"},
		{"a block of the file ends with it", "Include conf.d/1\nPort 9", "x", "port", "9"},
		{"within Match", "Match host a\nInclude plain", "a", "port", "3"},
		{"below Match final", "Match final all\nInclude plain", "a", "port", "3"},
		{"quoted", `Include "plain"`, "a", "port", "3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := resolve(t, c.text, files, Query{Host: c.host}).First(c.keyword, ""); got != c.want {
				t.Errorf("%s is %q, want %q", c.keyword, got, c.want)
			}
		})
	}
}

// What Fedora and Red Hat ship.
func TestFedora(t *testing.T) {
	files := map[string]string{
		"system":                 "Include ~/sys.d/*.conf\n",
		"sys.d/50-redhat.conf":   "Match final all\n\tInclude ~/crypto.config\n\tGSSAPIAuthentication yes\n\tForwardX11Trusted yes\n\tSendEnv LANG LC_CTYPE\n",
		"crypto.config":          "Ciphers aes256-gcm@openssh.com\nMACs hmac-sha2-256-etm@openssh.com\n",
		"sys.d/60-unrelated.txt": "Port 1\n",
	}
	v := resolve(t, "Host gpu\nHostName 10.0.0.1\nPort 2200\n", files, Query{Host: "gpu"})
	if v.First("port", "") != "2200" || v.First("hostname", "") != "10.0.0.1" || v.First("ciphers", "") == "" {
		t.Errorf("values %+v", v)
	}
}

func TestIdentityFilesAddUp(t *testing.T) {
	v := resolve(t, "IdentityFile a\nMatch final all\nIdentityFile b\nIdentityFile a", nil, Query{Host: "x"})
	var got []string
	for _, value := range v.All("IdentityFile") {
		got = append(got, value.Args[0])
	}
	if strings.Join(got, " ") != "a b" {
		t.Errorf("files %q", got)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing follows", "Port 1\nHost", "config line 2: nothing follows host"},
		{"only a comment follows", "Port # one", "config line 1: nothing follows port"},
		{"open quote", "\nUser \"x", "config line 2: a quote is not closed"},
		{"unknown criterion", "Match version 9\nPort 1", `config line 1: muster does not know the Match criterion "version"`},
		{"criterion without argument", "Match host", "config line 1: Match host lacks its argument"},
		{"all with others", "Match all host x", "Match all cannot be combined with host"},
		{"all is not last", "Match all final", "Match all stands last"},
		{"bad pattern", "Include [", "config line 1: Include"},
		{"unset variable", "Include ${NO_SUCH_VARIABLE}/x", "NO_SUCH_VARIABLE is not set"},
		{"error in an included file", "Include bad", "bad line 1: nothing follows host"},
		{"endless include", "Include config", "nests deeper"},
		{"folder", "Include folder", "is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := load(t, c.text, map[string]string{".ssh/bad": "Host", ".ssh/folder/x": ""})
			var where *Error
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &where) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	for _, text := range []string{"Match exec %q\nPort 1", "Match localnetwork 1.2.3.4\nPort 1"} {
		cfg, _, err := load(t, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = cfg.Resolve(context.Background(), Query{Host: "a"}); err == nil || !strings.Contains(err.Error(), "config line 1") {
			t.Errorf("error %v", err)
		}
	}
}

func TestExpand(t *testing.T) {
	tokens := Tokens{'h': "gpu", 'p': "22"}
	if got, err := Expand("%h:%p %% %h", tokens); got != "gpu:22 % gpu" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"%", "%x", "a%"} {
		if got, err := Expand(bad, tokens); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
	t.Setenv("A_VALUE", "x")
	if got, err := ExpandEnv("${A_VALUE}/$A_VALUE/${A_VALUE}"); got != "x/$A_VALUE/x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ExpandEnv("${A_VALUE"); err == nil {
		t.Error("open brace accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Host a !b\nPort=1\nMatch final all\nUser \"x\\\" y\"\n", "a")
	f.Add("Match host a,!b user c localuser d originalhost e tagged f\nHostName %h\n", "a")
	f.Add("ProxyCommand nc %h\nIdentityFile ~/x\nInclude nothing\n", "b")
	f.Fuzz(func(t *testing.T, text, host string) {
		l := &loader{home: "/nonexistent"}
		directives, err := l.parse(text, "config", maxDepth)
		if err != nil {
			var where *Error
			if !errors.As(err, &where) {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		for _, d := range directives {
			for _, c := range d.criteria {
				if c.name == "exec" {
					return // would run it
				}
			}
		}
		cfg := &Config{files: [][]directive{directives}, wantFinal: l.wantFinal}
		cfg.Resolve(context.Background(), Query{Host: host, LocalUser: "me"})
	})
}
