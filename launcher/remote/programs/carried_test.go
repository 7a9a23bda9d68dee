package programs

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	must(t, z.Close())
	return b.Bytes()
}

func unpacked(t *testing.T, b Binary) string {
	t.Helper()
	in, size, err := b.Gzip()
	must(t, err)
	defer in.Close()
	raw, err := io.ReadAll(in)
	must(t, err)
	if int64(len(raw)) != size {
		t.Fatalf("told %d bytes, has %d", size, len(raw))
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	must(t, err)
	text, err := io.ReadAll(z)
	must(t, err)
	if int64(len(text)) != b.Size {
		t.Fatalf("told %d bytes, has %d", b.Size, len(text))
	}
	return string(text)
}

func TestCarried(t *testing.T) {
	c, err := NewCarried(fstest.MapFS{
		"index.json":                  {Data: []byte(`{"muster-agent":{"plan9/mips":{"hash":"abc","size":5},"linux/s390x":{"hash":"def","size":3}}}`)},
		"muster-agent-plan9-mips.gz":  {Data: packed(t, "hello")},
		"muster-agent-linux-s390x.gz": {Data: packed(t, "abc")},
	})
	must(t, err)
	own := [2]string{runtime.GOOS, runtime.GOARCH}
	if got := c.Platforms("muster-agent"); !slices.Equal(got, [][2]string{{"linux", "s390x"}, {"plan9", "mips"}, own}) {
		t.Fatalf("platforms %v", got)
	}
	b, err := c.Find("muster-agent", "plan9", "mips")
	must(t, err)
	if b.Hash != "abc" || b.Args != nil || unpacked(t, b) != "hello" {
		t.Fatalf("binary %+v", b)
	}
	if _, err := c.Find("muster", "plan9", "mips"); err == nil {
		t.Fatal("found what is not carried")
	}
	if got := c.Platforms("nonsense"); len(got) != 0 {
		t.Fatalf("platforms %v", got)
	}
}

func TestRunningExecutableStandsIn(t *testing.T) {
	c, err := NewCarried(fstest.MapFS{})
	must(t, err)
	agent, err := c.Find("muster-agent", runtime.GOOS, runtime.GOARCH)
	must(t, err)
	muster, err := c.Find("muster", runtime.GOOS, runtime.GOARCH)
	must(t, err)
	if !slices.Equal(agent.Args, []string{"agent"}) || muster.Args != nil || agent.Hash != muster.Hash {
		t.Fatalf("agent %+v, muster %+v", agent, muster)
	}
	exe, err := os.Executable()
	must(t, err)
	want, err := os.ReadFile(exe)
	must(t, err)
	if unpacked(t, muster) != string(want) {
		t.Fatal("not the running executable")
	}
}

func TestBrokenIndex(t *testing.T) {
	if _, err := NewCarried(fstest.MapFS{"index.json": {Data: []byte("{")}}); err == nil {
		t.Fatal("accepted")
	}
}
