//go:build linux

package ranklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// pipe returns a pipe as the agent makes it: the read end does not block, the write end does.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
}

// write pumps what the two functions write into a new log and returns its path.
func write(t *testing.T, out, err func(io.Writer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attempt-0", "rank-0.log")
	w, e := Create(path)
	if e != nil {
		t.Fatal(e)
	}
	var wg sync.WaitGroup
	for lane, f := range []func(io.Writer){out, err} {
		r, end := pipe(t)
		wg.Go(func() {
			if err := w.Pump(r, Lane(lane)); err != nil {
				t.Error(err)
			}
			r.Close()
		})
		wg.Go(func() { f(end); end.Close() })
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func lanes(t *testing.T, path string) (out, err []byte) {
	t.Helper()
	r, e := Open(path, 0)
	if e != nil {
		t.Fatal(e)
	}
	defer r.Close()
	for {
		seg, e := r.Next(1000, true)
		if errors.Is(e, io.EOF) {
			return out, err
		}
		if e != nil {
			t.Fatal(e)
		}
		if seg.Lane == Stdout {
			out = append(out, seg.Data...)
		} else {
			err = append(err, seg.Data...)
		}
	}
}

func TestEveryByteOfBothStreamsIsKept(t *testing.T) {
	content := func(seed uint64) []byte {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 300_000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	out, err := content(1), content(2)
	send := func(b []byte) func(io.Writer) {
		return func(w io.Writer) {
			for len(b) > 0 {
				n := min(len(b), 7777)
				w.Write(b[:n])
				b = b[n:]
			}
		}
	}
	path := write(t, send(out), send(err))
	gotOut, gotErr := lanes(t, path)
	if !bytes.Equal(gotOut, out) || !bytes.Equal(gotErr, err) {
		t.Fatalf("streams changed on the way: %d and %d bytes of %d and %d", len(gotOut), len(gotErr), len(out), len(err))
	}
}

// Unbuffered Python writes a line in two calls, text and newline.
func TestLinesOfTheTwoStreamsDoNotMixInTheFile(t *testing.T) {
	lines := func(name string) func(io.Writer) {
		return func(w io.Writer) {
			for i := range 500 {
				io.WriteString(w, fmt.Sprintf("%s %d", name, i))
				io.WriteString(w, "\n")
			}
		}
	}
	path := write(t, lines("out"), lines("err"))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var name string
		var i int
		if _, err := fmt.Sscanf(line, "%s %d\n", &name, &i); err != nil || i != next[name] || strings.Count(line, " ") != 1 {
			t.Fatalf("line %q where %q %d was due", line, name, next[name])
		}
		next[name]++
	}
	if next["out"] != 500 || next["err"] != 500 {
		t.Fatalf("lines kept: %v", next)
	}
}

func TestAnOpenLineDoesNotHoldUpTheOtherStream(t *testing.T) {
	said := make(chan struct{})
	path := write(t,
		func(w io.Writer) { io.WriteString(w, "prompt> "); <-said; io.WriteString(w, "done\n") },
		func(w io.Writer) { io.WriteString(w, "warning\n"); close(said) })
	out, err := lanes(t, path)
	if string(out) != "prompt> done\n" || string(err) != "warning\n" {
		t.Fatalf("streams %q and %q", out, err)
	}
}

func TestAnExistingLogIsNeverOverwritten(t *testing.T) {
	path := write(t, func(w io.Writer) { io.WriteString(w, "first\n") }, func(io.Writer) {})
	if _, err := Create(path); err == nil {
		t.Fatal("a second Create succeeded")
	}
	if text, _ := os.ReadFile(path); string(text) != "first\n" {
		t.Fatalf("log now holds %q", text)
	}
}

func TestAnotherWriterGoesOnWhereAKilledOneStopped(t *testing.T) {
	path := write(t, func(w io.Writer) { io.WriteString(w, "one\n") }, func(io.Writer) {})
	// As if it was killed after the bytes and before their record.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("two\n")
	f.Close()
	w, err := Resume(path)
	if err != nil {
		t.Fatal(err)
	}
	r, end := pipe(t)
	io.WriteString(end, "three\n")
	end.Close()
	if err := w.Pump(r, Stdout); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if out, _ := lanes(t, path); string(out) != "one\ntwo\nthree\n" {
		t.Fatalf("log holds %q", out)
	}
}

func TestAFullDiskNeverBlocksTheWorker(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "rank-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.log.Close()
	w.log = full
	r, end := pipe(t)
	go func() { end.Write(make([]byte, 1<<20)); end.Close() }()
	if err := w.Pump(r, Stdout); err != nil {
		t.Fatal(err)
	}
	dropped, failure := w.Failure()
	if failure == nil || dropped != 1<<20 {
		t.Fatalf("failure %v after %d bytes", failure, dropped)
	}
}

func TestTailIsTheLastOfOneStream(t *testing.T) {
	path := write(t,
		func(w io.Writer) { io.WriteString(w, strings.Repeat("o", 100)+"\n") },
		func(w io.Writer) { io.WriteString(w, strings.Repeat("e", 100)+"LAST\n") })
	tail, err := Tail(path, Stderr, 5)
	if err != nil || string(tail) != "LAST\n" {
		t.Fatalf("tail %q, %v", tail, err)
	}
}
