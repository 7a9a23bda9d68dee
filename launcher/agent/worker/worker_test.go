//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/testbed/hungdisk"
)

func TestWhatARankHasWrittenIsKnownWhileItsLogHangs(t *testing.T) {
	d, is := hungdisk.New(t)
	if !is {
		return
	}
	log, err := ranklog.Create(filepath.Join(d.Path, "rank-0.log"))
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
	d.Hang()
	send("step 2\n")
	time.Sleep(100 * time.Millisecond) // the pump has met the disk
	began := time.Now()
	w := &Worker{Log: log, baseline: &baseline{}, pipes: []*os.File{read}}
	hungdisk.Soon(t, "looking for signs of life", func() { log.Taken() })
	s := New(Config{Loop: loop.New()})
	hungdisk.Soon(t, "warning", func() { s.warnOfLog(w) })
	w.closeLog()
	if took := time.Since(began); took > 2*loop.DiskWait || !w.baseline.runDisk.hangs {
		t.Errorf("all of it took %v", took)
	}
	write.Close()
	d.GoOn()
	if err := <-pumped; err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}
