package coordinator

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/event"
)

// A run goes on without its journal, and who watches it sees everything.
func TestThatEventsDoNotReachTheDiskIsToldOnce(t *testing.T) {
	disk := newDisk()
	faults := make(chan error, 3)
	j, err := openJournal(t.TempDir(), disk, func(err error) { faults <- err })
	if err != nil {
		t.Fatal(err)
	}
	j.file.Close()
	for range 3 {
		j.add(event.Event{Kind: event.Started})
	}
	if !disk.settle(reportWait) {
		t.Fatal("the disk takes nothing")
	}
	if len(faults) != 1 || !strings.Contains((<-faults).Error(), "closed") {
		t.Errorf("%d faults are told", len(faults))
	}
	if events, _ := j.since(1); len(events) != 3 {
		t.Errorf("%d events are shown", len(events))
	}
}

func TestWhoWaitsForADiskThatHangsWaitsForAMoment(t *testing.T) {
	disk, goOn := newDisk(), make(chan struct{})
	disk.do(func() { <-goOn })
	did := false
	disk.do(func() { did = true })
	if disk.settle(1) || did {
		t.Error("it is not waited for")
	}
	close(goOn)
	if !disk.settle(reportWait) || !did {
		t.Error("what was asked for meanwhile is not done")
	}
}
