package coordinator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/coordinator/run"
	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/rendezvous/link"
)

// at is what a worker has told that came to a step.
func at(lines ...string) *observe.Latest {
	r := observe.NewRecord(1, false)
	for i, line := range lines {
		r.Take([]byte(line), 1, float64(i+1))
	}
	return r.Latest()
}

const patient = "restart {\n attempts = 9\n backoff = \"0s\"\n on \"crash\" { attempts = 9 }\n}"

// crashed is the end of a worker that has told something.
func crashed(told *observe.Latest) message.Ended {
	return message.Ended{Signal: crash, Evidence: &evidence.Worker{Age: 60, Observed: told}}
}

// attempts has attempts fail one after the other, with what rank 1 had told in each, and
// returns how many were made.
func (d *drill) attempts(before func(attempt int), told ...*observe.Latest) int {
	for attempt, latest := range told {
		if before != nil {
			before(attempt)
		}
		d.failAll(attempt, crashed(latest))
		if d.b.Phase != run.Restarting {
			return attempt + 1
		}
		d.news(0, message.Update{PortHeld: &message.PortHeld{Attempt: attempt + 1, Port: 20001 + attempt}})
		d.tick(time.Second, 0, 1, 2)
	}
	return len(told)
}

func TestStepsThatAreToldCountAsProgress(t *testing.T) {
	further := []*observe.Latest{at("step 1", "step 10"), at("step 10", "step 20"), at("step 20", "step 30"), at("step 30", "step 40")}
	for name, c := range map[string]struct {
		told []*observe.Latest
		made int
	}{
		"further each time":      {further, 4},
		"nowhere":                {[]*observe.Latest{nil, nil, nil, nil}, 2},
		"no further":             {[]*observe.Latest{at("step 1", "step 10"), at("step 1", "step 10"), at("step 1", "step 10")}, 2},
		"a checkpoint":           {[]*observe.Latest{at("checkpoint /c/1"), at("checkpoint /c/2"), at("checkpoint /c/3"), at("checkpoint /c/4")}, 4},
		"values are no progress": {[]*observe.Latest{at("value loss 3"), at("value loss 2"), at("value loss 1")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			d := begun(t, patient)
			if made := d.attempts(nil, c.told...); made != c.made {
				t.Errorf("%d attempts, want %d: %+v", made, c.made, d.b.Record.Attempts)
			}
		})
	}
}

// Often rank 0 tells for all.
func TestAnotherRanksStepsCountWhereTheFailedOneTellsNone(t *testing.T) {
	d := begun(t, patient)
	tell := func(attempt int) {
		first, last := attempt*10, attempt*10+9
		d.news(0, message.Update{Observed: &message.Observed{Ranks: map[int]message.RankObserved{0: {Attempt: attempt, Latest: &observe.Latest{
			First: observe.Mark{Epoch: -1, Step: first}, Furthest: observe.Mark{Epoch: -1, Step: last}, Progress: observe.Mark{Epoch: -1, Step: last},
		}}}}})
	}
	if made := d.attempts(tell, nil, nil, nil, nil); made != 4 {
		t.Errorf("%d attempts: %+v", made, d.b.Record.Attempts)
	}
}

func TestToldStepsAreInTheCauseAndTheReport(t *testing.T) {
	d := begun(t, "")
	d.failAll(0, crashed(at("step 4", "phase eval", "step 3")))
	r := d.end(0, 1, 2)
	if notes := strings.Join(r.FirstCause.Notes, "\n"); !strings.Contains(notes, "it had come to step 4, in phase eval") {
		t.Errorf("notes %q", notes)
	}
	if o := r.Ranks[1].Ends[0].Observed; o == nil || o.Progress.Step != 3 || o.Furthest.Step != 4 {
		t.Errorf("%+v", o)
	}
}

func TestWhatIsToldOfAnotherAttemptOrHostIsDropped(t *testing.T) {
	d := begun(t, "")
	d.news(1, message.Update{Observed: &message.Observed{Ranks: map[int]message.RankObserved{0: {Latest: at("step 1")}, 99: {Latest: at("step 1")}, -1: {Latest: at("step 1")}}}})
	d.news(0, message.Update{Observed: &message.Observed{Ranks: map[int]message.RankObserved{0: {Attempt: 7, Latest: at("step 1")}, 1: {}}}})
	if all := observed(d.b); len(all.Ranks) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestTheNewestOfAllRanksLiesWhereWhoAsksFindsIt(t *testing.T) {
	d := begun(t, "")
	f := liveFile{dir: t.TempDir()}
	now := link.Now()
	written := func() bool {
		path := filepath.Join(f.dir, rundir.Observed)
		defer os.Remove(path)
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		var found message.Observed
		if err := json.Unmarshal(text, &found); err != nil || !reflect.DeepEqual(found, observed(d.b)) {
			t.Errorf("%s %v", text, err)
		}
		return true
	}
	f.write(d.b, now)
	if written() {
		t.Error("a file of nothing")
	}
	d.news(0, message.Update{Observed: &message.Observed{Ranks: map[int]message.RankObserved{0: {Latest: at("step 1", "value loss 2.5")}}}})
	f.write(d.b, now)
	first := written()
	d.news(0, message.Update{Observed: &message.Observed{Ranks: map[int]message.RankObserved{1: {Latest: at("step 2")}}}})
	f.write(d.b, now.Add(time.Second/2))
	soon := written()
	f.write(d.b, now.Add(3*time.Second))
	later := written()
	f.write(d.b, now.Add(30*time.Second))
	if again := written(); !first || soon || !later || again {
		t.Errorf("written: at once %v, too soon %v, later %v, without news %v", first, soon, later, again)
	}
}
