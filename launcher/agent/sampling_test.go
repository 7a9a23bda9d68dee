//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
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
	w := &worker{log: log, observer: &observer{}, scene: &scenery{}, pipes: []*os.File{read}}
	hungdisk.Soon(t, "looking for signs of life", func() { log.Taken() })
	a := &agent{loop: loop.New()}
	hungdisk.Soon(t, "warning", func() { a.warnOfLog(w) })
	w.closeLog()
	if took := time.Since(began); took > 2*diskWait || !w.scene.run.hangs {
		t.Errorf("all of it took %v", took)
	}
	write.Close()
	d.GoOn()
	if err := <-pumped; err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// A task that could not be started must not stand in its place's way.
func TestARankThatCouldNotBeStartedIsNotMeasured(t *testing.T) {
	a := &agent{loop: loop.New(), workers: map[int]*worker{7: {rank: 7, attempt: 1}, 8: {rank: 8}}}
	started := a.startedIn(&message.Start{Attempt: 1, Ranks: []message.RankStart{{Rank: 6}, {Rank: 7}, {Rank: 8}}})
	if len(started) != 1 || started[0].Rank != 7 || started[0].Attempt != 1 {
		t.Errorf("%+v", started)
	}
}
