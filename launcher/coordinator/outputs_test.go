package coordinator

import (
	"testing"
	"time"

	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/message"
)

// A launcher that has lost its connection comes back to tasks that were started again
// meanwhile.
func TestWhoComesBackGetsTheAttemptsThatItHasMissed(t *testing.T) {
	d := newSweep(t, `["a", "b", "c"]`, `
  restart {
    attempts = 4
    backoff  = "1ms"
    on "exit" { env = { X = 1 } }
    on "exit" { env = { X = 2 } }
  }`)
	for attempt := range 2 {
		d.taskEnded(0, attempt, 4)
		d.tick(time.Second, 0, 1, 2)
	}
	o := outputs{send: func(string, message.Command) {}}
	for name, of := range map[string]map[int32]int32{"all of them": {0: 0}, "the rest of one": {0: 1}, "the newest": {0: 2}, "only the newest": {}} {
		r := newReader(t.Context(), &pb.LogsRequest{Ranks: []int32{0, 1}, From: map[int32]uint64{0: 100}, Attempt: of})
		o.add(r, d.m)
		first := 2
		if attempt, known := of[0]; known {
			first = int(attempt)
		}
		if len(r.next) != 3-first+1 || r.next[source{first, 0}] != 100 || first < 2 && r.next[source{2, 0}] != 0 {
			t.Errorf("%s: the sources are %v", name, r.next)
		}
	}
}
