package session

import pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"

// Request is what the user asks of a launcher that stays with a run: by a signal or a key.
type Request struct {
	Exit   int    // of an end: the exit status that it asks for
	Reason string // such as "Ctrl-C"

	Stop   bool   // end the run
	Kill   bool   // without grace
	Leave  bool   // without waiting for it
	Detach bool   // leave the run, which goes on
	State  bool   // show where the run stands
	Signal string // to pass on to every rank, such as "SIGUSR1"
}

// Ends reports whether a launcher that has not begun its run gives up for this.
func (r Request) Ends() bool { return r.Stop || r.Detach && r.Exit != 0 }

func (r Request) stopRequest() *pb.StopRequest {
	return &pb.StopRequest{Kill: r.Kill, Exit: int32(r.Exit), Reason: r.Reason}
}
