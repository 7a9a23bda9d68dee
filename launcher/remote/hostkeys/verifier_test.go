package hostkeys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/muster-dev/muster/launcher/remote/sshconfig"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func public(t *testing.T, key any, err error) ssh.PublicKey {
	t.Helper()
	must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return signer.PublicKey()
}

func edKey(t *testing.T) ssh.PublicKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return public(t, key, err)
}

// known is a record with lines, and the trust that reads it.
func known(t *testing.T, lookup string, lines ...string) sshconfig.Trust {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return sshconfig.Trust{Lookup: lookup, User: []string{file, file + ".absent"}}
}

func verifier(t *testing.T, trust sshconfig.Trust) *Verifier {
	t.Helper()
	v, err := new(Registry).Verifier(trust)
	must(t, err)
	return v
}

func TestAlgorithmsFollowTheRecord(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	rsaPublic := public(t, rsaKey, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	ecPublic := public(t, ecKey, err)
	line := func(key ssh.PublicKey) string { return knownhosts.Line([]string{"gpu"}, key) }
	for name, c := range map[string]struct{ lines, want []string }{
		"nothing":          {nil, plainAlgorithms},
		"another host":     {[]string{knownhosts.Line([]string{"other"}, rsaPublic)}, plainAlgorithms},
		"rsa":              {[]string{line(rsaPublic)}, []string{"rsa-sha2-512", "rsa-sha2-256"}},
		"ecdsa":            {[]string{line(ecPublic)}, []string{"ecdsa-sha2-nistp384"}},
		"both":             {[]string{line(rsaPublic), line(ecPublic)}, []string{"ecdsa-sha2-nistp384", "rsa-sha2-512", "rsa-sha2-256"}},
		"an authority":     {[]string{"@cert-authority * " + keyText(rsaPublic)}, append(slices.Clone(certAlgorithms), plainAlgorithms...)},
		"and a plain key":  {[]string{"@cert-authority * " + keyText(rsaPublic), line(ecPublic)}, append(slices.Clone(certAlgorithms), "ecdsa-sha2-nistp384")},
		"with broken ones": {[]string{"gpu nonsense", line(ecPublic)}, []string{"ecdsa-sha2-nistp384"}},
	} {
		if got := verifier(t, known(t, "gpu:22", c.lines...)).Algorithms(); !slices.Equal(got, c.want) {
			t.Errorf("%s: offered %v, want %v", name, got, c.want)
		}
	}
}

func keyText(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func TestJudge(t *testing.T) {
	key, other := edKey(t), edKey(t)
	for name, c := range map[string]struct {
		lookup, line string
		want         string
	}{
		"recorded":                     {"gpu:22", "gpu " + keyText(key), ""},
		"hashed":                       {"gpu:22", knownhosts.HashHostname("gpu") + " " + keyText(key), ""},
		"pattern":                      {"gpu01:22", "gpu*,!gpu02 " + keyText(key), ""},
		"negated pattern":              {"gpu02:22", "gpu*,!gpu02 " + keyText(key), "not known"},
		"port":                         {"gpu:2200", "[gpu]:2200 " + keyText(key), ""},
		"hashed with a port":           {"gpu:2200", knownhosts.HashHostname("[gpu]:2200") + " " + keyText(key), ""},
		"bare name for another port":   {"gpu:2200", "gpu " + keyText(key), ""},
		"other key for the bare name":  {"gpu:2200", "gpu " + keyText(other), "not known"},
		"other key":                    {"gpu:22", "gpu " + keyText(other), "HOST KEY CHANGED"},
		"IPv6":                         {"[fe80::1]:22", "fe80::1 " + keyText(key), ""},
		"unknown":                      {"gpu:22", "# nothing", "not known"},
		"revoked":                      {"gpu:22", "@revoked * " + keyText(key), "revoked"},
		"authority's own key as plain": {"gpu:22", "@cert-authority gpu " + keyText(other), "not known"},
	} {
		err := verifier(t, known(t, c.lookup, c.line)).Judge(key)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAcceptedKeysAreRemembered(t *testing.T) {
	key := edKey(t)
	trust := known(t, "gpu:2200")
	var r Registry
	v, err := r.Verifier(trust)
	must(t, err)
	var unknown *UnknownError
	if err := v.Judge(key); !errors.As(err, &unknown) {
		t.Fatalf("error %v", err)
	}
	must(t, r.Accept(trust, key))
	must(t, verifier(t, trust).Judge(key))
	// Where it cannot be written down, this run knows it all the same.
	trust = sshconfig.Trust{Lookup: "other:22", User: []string{t.TempDir()}}
	if r.Accept(trust, key) == nil {
		t.Fatal("wrote to a folder")
	}
	trust.User = nil
	v, err = r.Verifier(trust)
	must(t, err)
	must(t, v.Judge(key))
}
