package remote

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestMain lets the test binary act as the proxy of muster-agent, and stand in for it.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "test-proxy" {
		os.Exit(proxy(os.Args[2]))
	}
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		fmt.Printf("%q", os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func proxy(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
	return 0
}

// fakePrograms are shell scripts in the place of binaries.
type fakePrograms map[string]string

func (f fakePrograms) Platforms(program string) [][2]string {
	if _, ok := f[program]; !ok {
		return nil
	}
	return [][2]string{{"linux", "amd64"}, {"linux", "arm64"}}
}

func (f fakePrograms) Find(program, goos, goarch string) (Binary, error) {
	text, ok := f[program]
	if !ok || goos != "linux" {
		return Binary{}, errors.New("not carried")
	}
	packed := pack(text)
	return Binary{Hash: packed.hash, Size: int64(len(text)), Gzip: func() (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader(packed.gzip)), int64(len(packed.gzip)), nil
	}}, nil
}

type packedText struct{ hash, gzip string }

var packedTexts sync.Map // from text

func pack(text string) packedText {
	if done, ok := packedTexts.Load(text); ok {
		return done.(packedText)
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	io.WriteString(z, text)
	z.Close()
	sum := sha256.Sum256([]byte(text))
	packed := packedText{hex.EncodeToString(sum[:8]), b.String()}
	packedTexts.Store(text, packed)
	return packed
}

// agentScript prints what it was told and the lines it is sent.
const agentScript = `#!/bin/sh
case $1 in
proxy) exec %s test-proxy "$2" ;;
exit) echo "last words" >&2; exit "$2" ;;
kill) kill -"$2" $$ ;;
args) shift; for a in "$@"; do printf "<%%s>\n" "$a"; done; exit 0 ;;
pwd) pwd; exit 0 ;;
session) echo $$; exec sleep 60 ;;
sleep) exec sleep 60 ;;
later) sleep "$2"; echo later; exit 0 ;;
esac
echo "hello from $0"
while read -r line; do echo "got $line"; done
echo bye
`

func testPrograms() fakePrograms {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return fakePrograms{"muster-agent": fmt.Sprintf(agentScript, exe), "muster": "#!/bin/sh\necho muster\n"}
}

// ownMachine is what the kernel calls this machine.
func ownMachine(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("uname", "-sm").Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}
