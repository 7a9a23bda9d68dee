//go:build linux

package failure

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

// tail is how much of each stream a worker's host sends.
const tail = 64 << 10

// garbage are texts that are long, and such as would be slow to read.
func garbage(t testing.TB) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, tail)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	repeat := func(text string) []byte { return bytes.Repeat([]byte(text), tail/len(text)+1)[:tail] }
	all := map[string][]byte{
		"noise": noise, "one line": repeat("a"), "blanks": repeat(" "), "empty lines": repeat("\n"), "returns": repeat("\r"), "brackets": repeat("["), "escapes": repeat("\x1b["),
		"phrases": repeat("CUDA out of memory. Tried to allocate "), "more phrases": repeat("CUDA error: out of memory\n"), "traces": repeat("Traceback (most recent call last):\n"),
		"frames": repeat("  File \"a.py\", line 1, in f\n"), "steps": repeat("step 1 epoch 2\n"), "bars": repeat(" 5%|#| 5/100 [00:01<00:19]\r"),
		"ranks": repeat("[rank1]: x\n[rank2]: y\n[rank33]: CUDA out of memory. Tried to allocate 1 GiB\n"), "digits": repeat("1234567890"), "xids": repeat("NVRM: Xid (PCI:0:0:0): 48, x\n"),
		"watchdogs": repeat("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=A, Timeout(ms)=1) ran for 1 milliseconds\n"),
		"processes": repeat("Process 1 has 1 GiB memory in use. "), "json": repeat(`{"a":"b\nTraceback"}` + "\n"), "dots": repeat("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o"), "ports": repeat("EADDRINUSE "),
		"many ranks": []byte(strings.Repeat("[rank12345]: x\n", 4000)),
	}
	var mixed []byte
	for _, s := range samples(t) {
		mixed = append(mixed, s.text...)
	}
	all["all samples"] = bytes.Repeat(mixed, 3)[:tail]
	return all
}

// The time is the processor's, as the machine may be busy with something else.
func TestAnythingIsReadInATimeThatNobodyNotices(t *testing.T) {
	limit := 50 * time.Millisecond
	if raceEnabled {
		limit *= 20
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, text := range garbage(t) {
		for where, e := range map[string]Evidence{
			"stderr":     {Code: 1, Worker: evidence.Worker{Stderr: text}},
			"stdout":     {Code: 1, Worker: evidence.Worker{Stdout: text}},
			"error file": {Code: 1, Worker: evidence.Worker{ErrorFile: text}},
			"kernel":     {Signal: "SIGKILL", Worker: evidence.Worker{Kernel: strings.Split(string(text), "\n")}},
		} {
			begin := used(t)
			v := Classify(e)
			Signature(v, e)
			if took := used(t) - begin; took >= limit {
				t.Errorf("%s, %s: %v", name, where, took)
			}
		}
	}
}

// used is the time that the processor has spent on this thread.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FuzzClassify: any evidence has a verdict of the table, the same each time, in words.
func FuzzClassify(f *testing.F) {
	for _, s := range samples(f) {
		f.Add([]byte(s.text), []byte("step 1\n"), 1, "", "")
		f.Add([]byte("[rank1]: x"), []byte(s.text), 0, "SIGKILL", "SIGTERM")
	}
	for _, text := range garbage(f) {
		f.Add(text[:512], text[:100], 137, "", "")
	}
	f.Fuzz(func(t *testing.T, stderr, stdout []byte, code int, signal, sent string) {
		e := Evidence{Code: code, Signal: signal, Sent: sent, Worker: evidence.Worker{Stderr: stderr, Stdout: stdout, ErrorFile: stderr, Kernel: strings.Split(string(stdout), "\n")}}
		v := Classify(e)
		if c, known := class.Find(v.Class); !known || v.Message == "" || v.Restart == "" || v.Confidence == "" || c.Name == class.None != e.succeeded() {
			t.Errorf("%+v", v)
		}
		if strings.ContainsAny(v.Message, "\n\x1b") {
			t.Errorf("it says %q", v.Message)
		}
		if Signature(v, e) != Signature(Classify(e), e) {
			t.Error("the signature changes")
		}
		if found, ok := First([]RankEvidence{{Rank: 0, Evidence: e}, {Rank: 1, Evidence: Evidence{Code: 1}}}, nil); !ok || len(found.Consequences) > 1 {
			t.Errorf("%+v", found)
		}
	})
}
