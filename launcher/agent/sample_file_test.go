//go:build linux

package agent

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/samples"
)

// freezable is a file system that can be made to hang, as one of a file server that is gone does.
type freezable struct {
	t    *testing.T
	path string
}

// It is not there where files cannot be mounted, as in containers without loop devices: what
// must not wait for a disk has been told so by a machine that can.
func newDisk(t *testing.T) (d freezable, is bool) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	image, path := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, argv := range [][]string{
		{"truncate", "-s", "16M", image},
		{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop", image, path},
	} {
		if said, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Logf("this machine mounts no file system of a file: %q: %v: %s", argv, err, said)
			return d, false
		}
	}
	d = freezable{t, path}
	t.Cleanup(func() {
		_ = d.freeze("-u") // it fails where it is not frozen
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d, true
}

func (d freezable) freeze(flag string) error { return exec.Command("fsfreeze", flag, d.path).Run() }

func (d freezable) hang() {
	d.t.Helper()
	if err := d.freeze("-f"); err != nil {
		d.t.Fatal(err)
	}
}

func (d freezable) goOn() {
	d.t.Helper()
	if err := d.freeze("-u"); err != nil {
		d.t.Fatal(err)
	}
}

// said are messages from another goroutine.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) take(_ context.Context, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, message)
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.all, "\n")
}

// soon fails where something takes longer than nothing at all.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Fatalf("%s waits for the disk", what)
	}
}

func TestMeasuringGoesOnWhileTheDiskHangs(t *testing.T) {
	d, is := newDisk(t)
	if !is {
		return
	}
	var messages said
	s := measuring(t)
	s.file.close()
	s.file = newSampleFile(filepath.Join(d.path, samplesFile), messages.take)
	now := time.Now()
	s.measureOnce(now)
	settle(t, s.file)
	d.hang()
	soon(t, "measuring", func() {
		for range 3 * samplesWaiting {
			now = now.Add(time.Second)
			s.measureOnce(now)
			s.judge()
		}
	})
	if got := messages.text(); strings.Count(got, "takes nothing") != 1 || !strings.Contains(got, d.path) {
		t.Errorf("said is %q", got)
	}
	if len(s.ranks[0].peaks) == 0 {
		t.Error("there are no peaks")
	}
	d.goOn()
	settle(t, s.file)
	before := now
	now = now.Add(time.Hour)
	s.measureOnce(now)
	s.file.close()
	series, err := samples.Read(s.file.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := series.Lines()
	if last := lines[len(lines)-1].At; last < before.Sub(s.file.base).Seconds()+3000 {
		t.Errorf("the last sample is of %v", last)
	}
	if got := strings.Count(messages.text(), "\n"); got != 0 {
		t.Errorf("said is %q", messages.text())
	}
}

func TestADiskThatHangsAtTheEndKeepsNobodyWaiting(t *testing.T) {
	d, is := newDisk(t)
	if !is {
		return
	}
	var messages said
	s := measuring(t)
	s.file.close()
	s.file = newSampleFile(filepath.Join(d.path, samplesFile), messages.take)
	d.hang()
	s.measureOnce(time.Now())
	soon(t, "the end", s.file.close)
	d.goOn()
	<-s.file.ended
}

func TestWhatARankHasWrittenIsKnownWhileItsLogHangs(t *testing.T) {
	d, is := newDisk(t)
	if !is {
		return
	}
	log, err := ranklog.Create(filepath.Join(d.path, "rank-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pumped := make(chan error, 1)
	go func() { pumped <- log.Pump(read, ranklog.Stdout) }()
	send := func(text string) {
		if _, err := write.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	send("step 1\n")
	for deadline := time.Now().Add(10 * time.Second); log.Taken() < 7 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	d.hang()
	send("step 2\n")
	time.Sleep(100 * time.Millisecond) // the pump has met the disk
	began := time.Now()
	w := &worker{log: log, observer: &observer{}, scene: &scenery{}, pipes: []*os.File{read}}
	signs := signsOf(w, false)
	soon(t, "looking for signs of life", func() { signs.look(time.Now(), work{}, samples.None(), time.Now()) })
	a := &agent{}
	soon(t, "warning", func() { a.warnOfLog(w) })
	w.closeLog()
	if took := time.Since(began); took > 2*diskWait || !w.scene.run.hangs {
		t.Errorf("all of it took %v", took)
	}
	write.Close()
	d.goOn()
	if err := <-pumped; err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}
