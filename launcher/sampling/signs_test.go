//go:build linux

package sampling

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/observe"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/samples"
)

// device is what a sample tells of one.
func device(busy, traffic float64) samples.Values {
	v := samples.None()
	v[samples.GPU], v[samples.Traffic] = busy, traffic
	return v
}

// watched are signs of a rank that is looked at each second, and of its device as often.
type watched struct {
	*Signs
	now time.Time
}

func newWatched(alone bool) *watched {
	s := newSigns(Rank{Alone: alone})
	return &watched{s, s.began}
}

func (w *watched) pass(seconds int, v samples.Values) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.update(w.now, work{}, v, w.now)
	}
}

func (w *watched) still() float64 { return w.pulse(w.now, 0, 0).Still() }

func TestARankWhoseDeviceComesToRestIsStill(t *testing.T) {
	w := newWatched(false)
	w.pass(10, device(80, 30))
	w.pass(60, device(100, 0)) // NCCL waits
	if got := w.still(); got != 60 {
		t.Errorf("still for %v s", got)
	}
}

// A driver that does not answer says nothing of whether a device computes.
func TestADeviceOfWhichNothingIsKnownIsNotAtRest(t *testing.T) {
	w := newWatched(false)
	w.pass(10, device(80, 30))
	w.pass(600, samples.None())
	if p := w.pulse(w.now, 0, 0); p.Device != nil {
		t.Errorf("it was last at work %v s ago", *p.Device)
	}
	w.pass(7, device(0, 0))
	if got := w.still(); got != 7 {
		t.Errorf("still for %v s", got)
	}
}

// nvidia-smi is asked each half minute.
func TestOneSampleOfADeviceIsNoRest(t *testing.T) {
	w := newWatched(false)
	w.pass(1, device(80, 30))
	sampled := w.now
	for range 3 {
		sampled = sampled.Add(30 * time.Second)
		for range 30 {
			w.now = w.now.Add(time.Second)
			w.update(w.now, work{}, device(0, 0), sampled)
		}
	}
	if got := w.still(); got != 0 {
		t.Errorf("still for %v s after three samples", got)
	}
}

// A kernel that keeps to its registers has no traffic either. Only who talks to others waits for them.
func TestADeviceThatIsBusyWithoutTrafficComputesWhereNobodyIsWaitedFor(t *testing.T) {
	w := newWatched(true)
	w.pass(600, device(100, 0))
	if p := w.pulse(w.now, 0, 0); p.Still() != 0 || p.Spins {
		t.Errorf("%+v", p)
	}
}

func TestTimeInWhichNobodyLooksIsNoSilence(t *testing.T) {
	w := newWatched(false)
	w.pass(20, samples.None())
	w.now = w.now.Add(10 * time.Minute)
	w.update(w.now, work{}, samples.None(), w.now)
	if got := w.still(); got < 20 || got > 20+maxUnseen.Seconds() {
		t.Errorf("still for %v s", got)
	}
}

// Where a rank is it may write itself, because it was asked.
func TestWhatARankWritesBecauseMusterAsksIsNoSignOfLife(t *testing.T) {
	log, err := ranklog.Create(filepath.Join(t.TempDir(), "rank-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(text string) {
		read, end, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := end.WriteString(text); err != nil {
			t.Fatal(err)
		}
		end.Close()
		if err := log.Pump(read, ranklog.Stderr); err != nil {
			t.Fatal(err)
		}
		read.Close()
	}
	w := newWatched(false)
	w.rank.Written = log.Taken
	w.pass(60, samples.None())
	w.excused.Store(int64(w.now.Sub(w.began) + 2*time.Second))
	write("Current thread 0x1 (most recent call first):\n")
	w.pass(3, samples.None())
	if got := w.pulse(w.now, 0, 0).Output; got != 63 {
		t.Errorf("it has written %v s ago", got)
	}
	write("step 7\n")
	w.pass(1, samples.None())
	if got := w.pulse(w.now, 0, 0).Output; got != 0 {
		t.Errorf("after a line of its own: %v s ago", got)
	}
}

func TestWhatAProcessReadsCountsHoweverItReads(t *testing.T) {
	const stat = "42 (a) b) D 1 2 3 4 5 6 100 0 7 0 150 50 0 0 20 0 1 0 5 90000 3 18446744073709551615"
	u := usageIn([]byte(stat), []byte("rchar: 10\nwchar: 20\nsyscr: 5\nread_bytes: 4096\nwrite_bytes: 0\n"))
	if u.cpu != 2 || u.faulted != 7*faultBytes || u.moved != 30+4096 || u.resident != 3*pageSize {
		t.Errorf("%+v", u)
	}
	if u := usageIn(nil, nil); u != (usage{}) {
		t.Errorf("of a process that is gone: %+v", u)
	}
}

// reading is what a process that runs is found to have moved.
func reading(moved uint64) usage { return usage{moved: moved, resident: 1} }

// Reading is looked at where nothing else tells that a rank works.
func TestARankThatOnlyReadsIsAliveAndOneThatPrintsIsNotAskedForIt(t *testing.T) {
	w := newWatched(false)
	p, moved, asked := process{}, uint64(0), 0
	pass := func(seconds int, rate uint64, prints bool) {
		for range seconds {
			w.now = w.now.Add(time.Second)
			moved += rate
			closely := w.Signs.still(w.now)
			if closely {
				asked++
			}
			if prints {
				w.output = w.now
			}
			w.update(w.now, p.take(w.now, reading(moved), closely), samples.None(), w.now)
		}
	}
	pass(60, 1<<20, false)
	if got := w.still(); got > stillAfter.Seconds()+1 || asked < 20 {
		t.Errorf("while it reads: still for %v s, looked %d times", got, asked)
	}
	asked = 0
	pass(600, 1<<20, true)
	if asked > 2 {
		t.Errorf("while it prints: looked %d times", asked)
	}
	pass(60, 0, false)
	if got := w.still(); got < 60-2*stillAfter.Seconds() {
		t.Errorf("once it does nothing: still for %v s", got)
	}
}

// What it has moved meanwhile says nothing of now.
func TestWhatAProcessHasMovedLongAgoIsNoSignOfLife(t *testing.T) {
	now := time.Now()
	p := process{}
	p.take(now, reading(1<<40), true)
	if did := p.take(now.Add(time.Second), reading(1<<40+1<<20), true); did.bytes != 1<<20 {
		t.Errorf("in a second it has moved %v bytes", did.bytes)
	}
	if did := p.take(now.Add(time.Hour), reading(1<<50), true); did.bytes != 0 {
		t.Errorf("%v bytes a second after an hour", did.bytes)
	}
}

// Data loaders of a rank that shows other signs of life are read by turns; what they have done since is not taken for
// that of one second.
func TestChildrenAreReadByTurnsUnlessTheRankIsStill(t *testing.T) {
	now := time.Now()
	main, child := &process{pid: os.Getpid()}, &process{pid: os.Getpid(), child: true}
	reads := func(still bool) (count int) {
		for turn := range 2 * childTurns {
			now = now.Add(time.Second)
			readAll([]*process{main, child}, now, turn+1, still)
			if !main.read.Equal(now) {
				t.Error("the rank itself was not read")
			}
			if child.read.Equal(now) {
				count++
			}
		}
		return count
	}
	readAll([]*process{main, child}, now, 1, false)
	if !child.lives {
		t.Error("a new one waits for its turn")
	}
	if got := reads(false); got != 2 {
		t.Errorf("read %d times, as long as there are other signs of life", got)
	}
	if got := reads(true); got != 2*childTurns {
		t.Errorf("read %d times while there are none", got)
	}
	child.used.cpu = 0
	did := child.take(now.Add(childTurns*time.Second), usage{cpu: 2, resident: 1}, false)
	if did.cpu != 2.0/childTurns {
		t.Errorf("2 s of CPU in %d s are %v cores", childTurns, did.cpu)
	}
}

// A phase may be that of compiling, in which CPUs alone work.
func TestAProgramThatNamesItsPhaseHasNotWorkedByThat(t *testing.T) {
	for line, worked := range map[string]bool{"phase compile": false, "step 0": true} {
		record := observe.NewRecord(os.Getpid(), false)
		record.Take([]byte(line), os.Getpid(), 3)
		w := newWatched(false)
		w.rank.Reported = record.Latest
		w.pass(5, samples.None())
		if p := w.pulse(w.now, 0, 0); p.Worked != worked || p.Told != 2 {
			t.Errorf("%s: %+v", line, p)
		}
	}
}
