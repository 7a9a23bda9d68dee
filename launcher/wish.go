package launcher

import pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"

// Wish is something that the user wants of a launcher that stays with a run.
type Wish struct {
	Exit   int    // of an end: the exit status that it asks for
	Reason string // such as "Ctrl-C"

	Stop   bool   // the run is to end
	Kill   bool   // without grace
	Leave  bool   // without waiting for it
	Detach bool   // the launcher is to leave, the run to go on
	State  bool   // show where the run stands
	Signal string // to be passed on to every rank, such as "SIGUSR1"
}

// stopRequest is the wish as the coordinator wants it.
func (w Wish) stopRequest() *pb.StopRequest {
	return &pb.StopRequest{Kill: w.Kill, Exit: int32(w.Exit), Reason: w.Reason}
}

// ends reports whether a launcher that has not begun its run gives up for this.
func (w Wish) ends() bool { return w.Stop || w.Detach && w.Exit != 0 }
