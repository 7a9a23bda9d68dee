package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/samples"
	"github.com/muster-dev/muster/launcher/session"
)

// Known is a run that was launched from here earlier.
type Known struct {
	Run      history.Run
	Connect  fleet.Connector
	Observer session.Observer
	History  history.Store
}

var _ session.Reach = (*Known)(nil)

// State asks the head host where the run stands. A run whose end is known here is asked for
// all the same when its details are wanted.
func (k *Known) State(ctx context.Context) (event.State, error) {
	ctx, cancel := context.WithTimeout(ctx, fleet.AskWait)
	defer cancel()
	host, err := k.connect(ctx, k.Run.Head())
	if err != nil {
		return event.State{Name: event.Unknown, Message: err.Error()}, err
	}
	defer host.Close()
	found, err := k.lookup(ctx, host)
	if err != nil {
		return event.State{Name: event.Unknown, Message: err.Error()}, err
	}
	s := k.stateOf(found)
	if found.Control != "" && s.Report == nil {
		k.askCoordinator(ctx, host, found.Control, &s)
	}
	return s, nil
}

// maxQueryWait is how long a command that only asks waits for a coordinator.
const maxQueryWait = 5 * time.Second

// askCoordinator adds to a state what only the coordinator knows, or that it does not answer.
func (k *Known) askCoordinator(ctx context.Context, host remote.Host, path string, s *event.State) {
	c, err := session.Dial(ctx, host, path)
	if err != nil {
		return // it ends just now
	}
	defer c.Close()
	if silent := (*session.SilentError)(nil); errors.As(c.Greet(ctx, maxQueryWait), &silent) {
		s.Name, s.Message = event.Unknown, (&session.MuteError{Run: k.Run, Silent: silent}).Error()
		return
	}
	s.Samples = samplesOf(ctx, c)
}

// samplesOf is how ranks use memory now; nil where the coordinator does not tell.
func samplesOf(ctx context.Context, c *session.Client) (found *samples.Overview) {
	_ = c.Samples(ctx, false, func(o *samples.Overview) { found = o }) // one that ends just now tells none
	return found
}

// explain makes an error of a coordinator what the user gets.
func (k *Known) explain(err error) error {
	if silent := (*session.SilentError)(nil); errors.As(err, &silent) {
		err = &session.MuteError{Run: k.Run, Silent: silent}
	}
	return &report.Error{Exit: report.ExitUnreachable, Message: err.Error(), Err: err}
}

func (k *Known) connect(ctx context.Context, h history.Host) (remote.Host, error) {
	return k.Connect(ctx, targetOfRun(h))
}

func targetOfRun(h history.Host) remote.Target {
	return remote.Target{Name: h.Address, User: h.User, Port: h.Port}
}

func (k *Known) lookup(ctx context.Context, host remote.Host) (message.Lookup, error) {
	var found message.Lookup
	err := fleet.Ask(ctx, host, []string{"lookup", "-run", k.Run.ID}, func(line []byte) error {
		return json.Unmarshal(line, &found)
	})
	return found, err
}

// stateOf is what a head host's answer means.
func (k *Known) stateOf(found message.Lookup) event.State {
	lines := make([][]byte, len(found.Journal))
	for i, line := range found.Journal {
		lines[i] = line
	}
	s := event.Fold(lines)
	if found.Observed != nil && s.Report == nil {
		for rank, told := range found.Observed.Ranks {
			s.Observe(rank, told.Attempt, told.Latest)
		}
	}
	switch head := k.Run.Head().Name; {
	case s.Report != nil:
		k.remember(s)
	case !found.Known:
		s.Lose("nothing of it is left on " + head)
	case found.Control == "":
		s.Lose("its coordinator on " + head + " is no more and has left no report; the agents have ended the workers within the lease")
	}
	return s
}

// remember keeps an end that was learnt.
func (k *Known) remember(s event.State) {
	k.Run.Outcome, k.Run.Exit, k.Run.Attempt = s.Report.Outcome, s.Report.Exit, s.Attempt
	_ = k.History.Write(k.Run) // it can be learnt again
}

// answerPatience is how long a coordinator may take to answer before that is said.
const answerPatience = 2 * time.Second

// Open connects to the coordinator; a run that is over is no error, but has no control.
func (k *Known) Open(ctx context.Context) (*session.Live, error) {
	host, err := k.connect(ctx, k.Run.Head())
	if err != nil {
		return nil, report.Errorf(report.ExitUnreachable, "%v", err)
	}
	found, err := k.lookup(ctx, host)
	if err != nil {
		host.Close()
		return nil, report.Errorf(report.ExitUnreachable, "%v", err)
	}
	l := &session.Live{Host: host, State: k.stateOf(found), Events: uint64(len(found.Journal))}
	if found.Control == "" || l.State.Report != nil {
		return l, nil
	}
	if l.Control, err = session.Dial(ctx, host, found.Control); err == nil {
		limit := session.MaxSilence(min(k.Run.Lease, session.UsualLease))
		wait := time.AfterFunc(answerPatience, func() {
			k.Observer.Say(fmt.Sprintf("the coordinator on %s does not answer; waiting for at most %v", k.Run.Head().Name, limit))
		})
		err = l.Control.Greet(ctx, limit)
		wait.Stop()
	}
	if err != nil {
		l.Close()
		return nil, k.explain(err)
	}
	return l, nil
}

// openUnlessLeft is Open for a command that the user may leave meanwhile.
func (k *Known) openUnlessLeft(ctx context.Context, requests <-chan Request) (l *session.Live, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		l, err = k.Open(ctx)
	}()
	for {
		select {
		case <-opened:
			return l, err
		case r := <-requests:
			if !r.Ends() && !r.Detach {
				continue
			}
			cancel()
			if <-opened; err == nil {
				l.Close()
			}
			return nil, report.Errorf(r.Exit, "%s; nothing was done to run %s", r.Reason, k.Run.ID)
		}
	}
}

// checkRanks says where a set names ranks that the run does not have.
func (k *Known) checkRanks(set config.RankSet) error {
	if last := set.Last(); last >= k.Run.WorldSize() {
		return report.Errorf(report.ExitUsage, "run %s has no rank %d: its ranks are 0 to %d", k.Run.ID, last, k.Run.WorldSize()-1)
	}
	return nil
}

// Attach comes back to a run and stays until it is over. The exit status is the run's.
func (k *Known) Attach(ctx context.Context, show config.RankSet, requests <-chan Request) (Outcome, error) {
	if err := k.checkRanks(show); err != nil {
		return Outcome{}, err
	}
	l, err := k.openUnlessLeft(ctx, requests)
	if err != nil {
		return Outcome{}, err
	}
	if l.Control == nil {
		defer l.Close()
		return k.ended(l.State)
	}
	k.Observer.Say(fmt.Sprintf("attached to %s: %s", k.Run.ID, l.State.Name))
	return k.stay(ctx, l, show, requests)
}

func (k *Known) stay(
	ctx context.Context, l *session.Live, show config.RankSet, requests <-chan Request,
) (Outcome, error) {
	end, err := session.Attach(ctx, k.session(show, requests), l)
	return Outcome{Report: end.Report, Exit: end.Exit}, err
}

func (k *Known) session(show config.RankSet, requests <-chan Request) session.Spec {
	return session.Spec{
		Run: k.Run, History: k.History, Reach: k, Observer: k.Observer, Requests: requests, Show: show,
	}
}

// ended is the outcome of a run that is over.
func (k *Known) ended(s event.State) (Outcome, error) {
	if s.Report == nil {
		return Outcome{}, session.LostRun(k.Run, s)
	}
	return Outcome{Report: s.Report, Exit: s.Report.Exit}, nil
}

// How is a way to stop a run.
type How int

const (
	StopGently How = iota // workers get their grace
	StopNow               // without grace
	StopDrain             // nothing more is started, and what runs ends by itself
)

// Stop ends a run and waits until it is over. The exit status is 0 if it was stopped, or had
// ended already.
func (k *Known) Stop(ctx context.Context, how How, requests <-chan Request) (Outcome, error) {
	l, err := k.openUnlessLeft(ctx, requests)
	if err != nil {
		return Outcome{}, err
	}
	if l.Control == nil {
		defer l.Close()
		if l.State.Report == nil {
			return k.ended(l.State)
		}
		k.Observer.Say("run " + k.Run.ID + " has ended already")
		return Outcome{}, nil
	}
	request := &pb.StopRequest{
		Kill: how == StopNow, Drain: how == StopDrain, Exit: report.ExitTerminated, Reason: "muster stop",
	}
	if request.Drain {
		request.Reason += " --drain"
	}
	err = l.Control.WhileAlive(ctx, session.MaxSilence(k.Run.Lease), func(ctx context.Context) error {
		return l.Control.Stop(ctx, request)
	})
	if err != nil {
		l.Close()
		if no := (*session.Refusal)(nil); errors.As(err, &no) {
			return Outcome{}, report.Errorf(report.ExitUsage, "%v", err)
		}
		return Outcome{}, k.explain(err)
	}
	none, _ := config.ParseRankSet("none")
	out, err := k.stay(ctx, l, none, requests)
	if out.Exit == report.ExitTerminated {
		out.Exit = report.ExitOK
	}
	return out, err
}
