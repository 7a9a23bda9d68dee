//go:build linux

package sampling

import (
	"github.com/muster-dev/muster/launcher/testbed/hungdisk"

	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/samples"
)

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

// measuringOnto is measuring with its file on a disk that can hang; nil where there is none.
func measuringOnto(t *testing.T) (hungdisk.Disk, *Sampler, *said) {
	t.Helper()
	d, is := hungdisk.New(t)
	if !is {
		return d, nil, nil
	}
	messages := &said{}
	s := measuring(t)
	s.File.Close()
	s.File = NewFile(filepath.Join(d.Path, FileName), messages.take)
	return d, s, messages
}

func TestMeasuringGoesOnWhileTheDiskHangs(t *testing.T) {
	d, s, messages := measuringOnto(t)
	if s == nil {
		return
	}
	now := time.Now()
	s.measureOnce(now)
	settle(t, s.File)
	d.Hang()
	hungdisk.Soon(t, "measuring", func() {
		for range 3 * samplesWaiting {
			now = now.Add(time.Second)
			s.measureOnce(now)
			s.judge()
		}
	})
	if got := messages.text(); strings.Count(got, "takes nothing") != 1 || !strings.Contains(got, d.Path) {
		t.Errorf("said is %q", got)
	}
	if len(s.ranks[0].peaks) == 0 {
		t.Error("there are no peaks")
	}
	d.GoOn()
	settle(t, s.File)
	before := now
	now = now.Add(time.Hour)
	s.measureOnce(now)
	s.File.Close()
	series, err := samples.Read(s.File.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := series.Lines()
	if last := lines[len(lines)-1].At; last < before.Sub(s.File.base).Seconds()+3000 {
		t.Errorf("the last sample is of %v", last)
	}
	if got := strings.Count(messages.text(), "\n"); got != 0 {
		t.Errorf("said is %q", messages.text())
	}
}

func TestADiskThatHangsAtTheEndKeepsNobodyWaiting(t *testing.T) {
	d, s, _ := measuringOnto(t)
	if s == nil {
		return
	}
	d.Hang()
	s.measureOnce(time.Now())
	hungdisk.Soon(t, "the end", s.File.Close)
	d.GoOn()
	<-s.File.ended
}
