package bootstrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/remote/programs"
)

// carried are programs by platform, such as "linux/amd64".
type carried map[string][]string

func (c carried) Platforms(program string) [][2]string {
	var out [][2]string
	for _, platform := range c[program] {
		goos, goarch, _ := strings.Cut(platform, "/")
		out = append(out, [2]string{goos, goarch})
	}
	return out
}

func (c carried) Find(program, goos, goarch string) (programs.Binary, error) {
	return programs.Binary{Hash: "c0ffee" + goarch, Size: 1, Args: []string{"as", "it is"}}, nil
}

func TestTextSuitsEveryLoginShell(t *testing.T) {
	from := carried{"a": {"linux/amd64", "linux/arm64"}, "b": {"linux/amd64", "linux/arm64"}}
	s, err := New("word", Wanted{Programs: []string{"a", "b"}, Args: []string{"{b}", `it's \ ! "x" $y` + "`z`é"}}, from)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(s.Text, "'!\n") || strings.Contains(s.Text, `\\`) || regexp.MustCompile("@[A-Z]+@").MatchString(s.Text) {
		t.Errorf("a login shell may stumble over: %s", s.Text)
	}
	if out, err := exec.Command("/bin/sh", "-n", "-c", s.Text).CombinedOutput(); err != nil {
		t.Errorf("no sh: %v: %s", err, out)
	}
	if len(s.Binaries) != 4 || !slices.Equal(s.Platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("script %+v", s)
	}
}

func TestPlatformsThatHaveAllPrograms(t *testing.T) {
	from := carried{"a": {"linux/amd64", "linux/arm64", "darwin/arm64"}, "b": {"linux/arm64", "darwin/arm64"}}
	s, err := New("word", Wanted{Programs: []string{"a", "b"}}, from)
	if err != nil || !slices.Equal(s.Platforms, []string{"linux/arm64"}) {
		t.Errorf("%v, %v", s.Platforms, err)
	}
	if _, err := New("word", Wanted{Programs: []string{"a", "c"}}, from); err == nil {
		t.Error("made a text without programs")
	}
}

func TestAnOptionalProgramMayBeLacking(t *testing.T) {
	from := carried{"a": {"linux/amd64", "linux/arm64"}, "b": {"linux/amd64"}}
	s, err := New("word", Wanted{Programs: []string{"a"}, Optional: []Optional{{Program: "b"}}, Args: []string{"-b", "{b}"}}, from)
	if err != nil || !slices.Equal(s.Platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Fatalf("%v, %v", s, err)
	}
	for arch, want := range map[string]string{"x86_64": "-b /c/b-c0ffeeamd64", "aarch64": "-b "} {
		_, rest, _ := strings.Cut(s.Text, "case $m in ")
		choice, _, _ := strings.Cut(rest, "esac")
		_, command, _ := strings.Cut(s.Text, "exec \"$c/$p0\" \"$@\" ")
		out, err := exec.Command("/bin/sh", "-c", "c=/c; m='Linux "+arch+"'; f() { :; }; case $m in "+choice+"esac; echo "+command).Output()
		if err != nil || strings.TrimSuffix(string(out), "\n") != want {
			t.Errorf("on %s: %q (%v), want %q", arch, out, err, want)
		}
	}
}

func TestAnOptionalProgramIsForHostsThatShowAUseForIt(t *testing.T) {
	from := carried{"a": {"linux/amd64", "linux/arm64"}, "b": {"linux/amd64", "linux/arm64"}}
	there := filepath.Join(t.TempDir(), "it's there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{there: "asked for b", "/nowhere": ""} {
		s, err := New("w", Wanted{Programs: []string{"a"}, Optional: []Optional{{"b", []string{"/no", path}}}}, from)
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(s.Text, "for p in ")
		out, err := exec.Command("/bin/sh", "-c", text+"[ -z \"$p1\" ] || echo asked for b").Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("with %s: %q (%v), want %q", path, out, err, want)
		}
	}
}

func TestWhatCannotBeSaid(t *testing.T) {
	from := carried{"a": {"linux/amd64"}, "b c": {"linux/amd64"}}
	for name, c := range map[string]struct{ names, args []string }{
		"line end":        {[]string{"a"}, []string{"x\ny"}},
		"unknown program": {[]string{"a"}, []string{"{b}"}},
		"odd name":        {[]string{"b c"}, nil},
	} {
		if s, err := New("word", Wanted{Programs: c.names, Args: c.args}, from); err == nil {
			t.Errorf("%s: %s", name, s.Text)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add(`it's "x" $y \ !`)
	f.Fuzz(func(t *testing.T, arg string) {
		quoted, err := quote(arg)
		if err != nil {
			return
		}
		if strings.ContainsAny(quoted, "'!\n") || strings.Contains(quoted, `\\`) {
			t.Fatalf("unfit: %s", quoted)
		}
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+quoted).Output()
		if err != nil || string(out) != arg {
			t.Fatalf("%q became %q (%v)", arg, out, err)
		}
	})
}

func TestLines(t *testing.T) {
	in := "banner\nno line end w1 missing a gzip\r\nw1\nxw1 exec /x y\nrest\nw1 exec no\n"
	l := NewLines(strings.NewReader(in), "w1")
	for _, want := range [][2]string{{"missing", "a gzip"}, {"exec", "/x y"}} {
		verb, rest, err := l.Next()
		if verb != want[0] || rest != want[1] || err != nil {
			t.Fatalf("%q %q %v", verb, rest, err)
		}
	}
	var rest strings.Builder
	buffer := make([]byte, 100)
	n, _ := l.Rest().Read(buffer)
	rest.Write(buffer[:n])
	if rest.String() != "rest\nw1 exec no\n" {
		t.Errorf("rest %q", rest.String())
	}
	if !strings.HasPrefix(l.Junk(), "banner\nno line end ") {
		t.Errorf("junk %q", l.Junk())
	}
}

func TestEndlessJunkIsNotKept(t *testing.T) {
	l := NewLines(strings.NewReader(strings.Repeat("x", 1<<20)), "w1")
	if _, _, err := l.Next(); err == nil {
		t.Fatal("found a line")
	}
	if len(l.Junk()) > junkSize {
		t.Errorf("kept %d bytes", len(l.Junk()))
	}
}
