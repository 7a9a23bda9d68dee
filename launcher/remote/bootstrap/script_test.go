package bootstrap

import (
	"os/exec"
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
	s, err := New("word", []string{"a", "b"}, []string{"{b}", `it's \ ! "x" $y` + "`z`é"}, from)
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
	s, err := New("word", []string{"a", "b"}, nil, from)
	if err != nil || !slices.Equal(s.Platforms, []string{"linux/arm64"}) {
		t.Errorf("%v, %v", s.Platforms, err)
	}
	if _, err := New("word", []string{"a", "c"}, nil, from); err == nil {
		t.Error("made a text without programs")
	}
}

func TestWhatCannotBeSaid(t *testing.T) {
	from := carried{"a": {"linux/amd64"}, "b c": {"linux/amd64"}}
	for name, c := range map[string]struct{ names, args []string }{
		"line end":        {[]string{"a"}, []string{"x\ny"}},
		"unknown program": {[]string{"a"}, []string{"{b}"}},
		"odd name":        {[]string{"b c"}, nil},
	} {
		if s, err := New("word", c.names, c.args, from); err == nil {
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
