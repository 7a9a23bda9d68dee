package launcher

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/remote"
	"github.com/muster-dev/muster/launcher/report"
)

// Known is a run that was started earlier, by this launcher's notebook.
type Known struct {
	Page     history.Run
	Connect  Connector
	View     View
	Notebook history.Store
}

// askWait bounds how long a host may take to tell what it knows, or the next line of it.
const askWait = 30 * time.Second

// State asks the head host where the run stands. A run whose end is known here is asked
// for all the same when its details are wanted.
func (k *Known) State(ctx context.Context) (event.State, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	host, err := k.connect(ctx, k.Page.Hosts[0])
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

// briefly is how long somebody who only asks waits for a coordinator.
const briefly = 5 * time.Second

// askCoordinator adds to a state what only the coordinator knows, or that it does not answer.
func (k *Known) askCoordinator(ctx context.Context, host remote.Host, path string, s *event.State) {
	c, err := dialControl(ctx, host, path)
	if err != nil {
		return // it ends just now
	}
	defer c.close()
	if silent := (*silentError)(nil); errors.As(c.greet(ctx, briefly), &silent) {
		s.Name, s.Message = event.Unknown, k.mute(silent).Error()
		return
	}
	s.Samples = samplesOf(ctx, c)
}

// muteError: a coordinator is there and answers nothing.
type muteError struct {
	run, head string
	silent    *silentError
	lease     time.Duration
}

func (e *muteError) Error() string {
	return fmt.Sprintf("the coordinator of run %s on %s does not answer (for %v): it is stopped or hangs.\nIts keeper ends it after the lease (%v), unless the kernel waits for a disk or a driver there; without it the agents end their workers.",
		e.run, e.head, e.silent.passed, e.lease)
}

func (k *Known) mute(silent *silentError) *muteError {
	return &muteError{run: k.Page.ID, head: k.Page.Hosts[0].Name, silent: silent, lease: cmp.Or(k.Page.Lease, usualLease)}
}

// explained is an error of a coordinator as the user gets it.
func (k *Known) explained(err error) error {
	if silent := (*silentError)(nil); errors.As(err, &silent) {
		err = k.mute(silent)
	}
	return &Failure{Exit: report.ExitUnreachable, Message: err.Error(), Err: err}
}

func (k *Known) connect(ctx context.Context, h history.Host) (remote.Host, error) {
	return k.Connect(ctx, remote.Target{Name: h.Address, User: h.User, Port: h.Port})
}

func (k *Known) lookup(ctx context.Context, host remote.Host) (message.Lookup, error) {
	var found message.Lookup
	err := ask(ctx, host, []string{"lookup", "-run", k.Page.ID}, func(line []byte) error {
		return json.Unmarshal(line, &found)
	})
	return found, err
}

// ask runs the agent's program on a host and hands each line that it prints to take. One that
// is silent for too long is given up, with the connection: the file system may hang that it
// reads.
func ask(ctx context.Context, host remote.Host, args []string, take func(line []byte) error) error {
	process, err := host.Start(ctx, remote.Launch{Program: "muster-agent", Args: args})
	if err != nil {
		return err
	}
	defer process.Close()
	var late atomic.Bool
	giveUp := time.AfterFunc(askWait, func() {
		late.Store(true)
		_ = host.Close()
	})
	defer giveUp.Stop()
	stop := context.AfterFunc(ctx, func() { _ = host.Close() })
	defer stop()
	lines := bufio.NewReader(process.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && late.Load() {
			return fmt.Errorf("%s: no answer for %v: perhaps a file system there hangs", host.Name(), askWait)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		giveUp.Stop() // a pager may make take wait
		if err == nil {
			err = context.Cause(ctx) // whoever asked may have had enough meanwhile
		}
		if err == nil {
			err = take(line)
		}
		giveUp.Reset(askWait)
		if err != nil {
			return fmt.Errorf("%s: %w", host.Name(), err)
		}
	}
	if err := process.Wait(); err != nil {
		return fmt.Errorf("%s: %w %s", host.Name(), err, process.Stderr())
	}
	return nil
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
	switch {
	case s.Report != nil:
		k.note(s)
	case !found.Known:
		s.Lose("nothing of it is left on " + k.Page.Hosts[0].Name)
	case found.Control == "":
		s.Lose("its coordinator on " + k.Page.Hosts[0].Name + " is no more and has left no report; the agents have ended the workers within the lease")
	}
	return s
}

// note keeps an end that was learnt.
func (k *Known) note(s event.State) {
	k.Page.Outcome, k.Page.Exit, k.Page.Attempt = s.Report.Outcome, s.Report.Exit, s.Attempt
	_ = k.Notebook.Write(k.Page) // it can be learnt again
}

// patientFor is how long a coordinator may take to answer before that is said.
const patientFor = 2 * time.Second

// live is a run that is still going on, with an open control socket.
type live struct {
	host    remote.Host
	control *control
	state   event.State
	seen    uint64 // events that state already tells of
}

// open connects to the coordinator; a run that is over is no error, but has no control.
func (k *Known) open(ctx context.Context) (*live, error) {
	host, err := k.connect(ctx, k.Page.Hosts[0])
	if err != nil {
		return nil, failure(report.ExitUnreachable, "%v", err)
	}
	found, err := k.lookup(ctx, host)
	if err != nil {
		host.Close()
		return nil, failure(report.ExitUnreachable, "%v", err)
	}
	l := &live{host: host, state: k.stateOf(found), seen: uint64(len(found.Journal))}
	if found.Control == "" || l.state.Report != nil {
		return l, nil
	}
	if l.control, err = dialControl(ctx, host, found.Control); err == nil {
		limit := silenceIn(min(k.Page.Lease, usualLease))
		wait := time.AfterFunc(patientFor, func() {
			k.View.Say(fmt.Sprintf("the coordinator on %s does not answer; waiting for at most %v", k.Page.Hosts[0].Name, limit))
		})
		err = l.control.greet(ctx, limit)
		wait.Stop()
	}
	if err != nil {
		l.close()
		return nil, k.explained(err)
	}
	return l, nil
}

// openUnlessLeft is open for a command that the user may leave meanwhile.
func (k *Known) openUnlessLeft(ctx context.Context, wishes <-chan Wish) (l *live, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		l, err = k.open(ctx)
	}()
	for {
		select {
		case <-opened:
			return l, err
		case wish := <-wishes:
			if !wish.ends() && !wish.Detach {
				continue
			}
			cancel()
			if <-opened; err == nil {
				l.close()
			}
			return nil, failure(wish.Exit, "%s; nothing was done to run %s", wish.Reason, k.Page.ID)
		}
	}
}

func (l *live) close() {
	if l.control != nil {
		l.control.close()
	}
	_ = l.host.Close() // nothing is left to be told
}

// hasRanks says where a set names ranks that the run does not have.
func (k *Known) hasRanks(set config.RankSet) error {
	if last := set.Last(); last >= k.Page.WorldSize() {
		return failure(report.ExitUsage, "run %s has no rank %d: its ranks are 0 to %d", k.Page.ID, last, k.Page.WorldSize()-1)
	}
	return nil
}

// Attach comes back to a run and stays until it is over. It returns the run's exit status.
func (k *Known) Attach(ctx context.Context, show config.RankSet, wishes <-chan Wish) (int, error) {
	if err := k.hasRanks(show); err != nil {
		return 0, err
	}
	l, err := k.openUnlessLeft(ctx, wishes)
	if err != nil {
		return 0, err
	}
	if l.control == nil {
		defer l.close()
		return k.ended(l.state)
	}
	k.View.Say(fmt.Sprintf("attached to %s: %s", k.Page.ID, l.state.Name))
	return k.watch(l, show, wishes).stay(ctx)
}

func (k *Known) watch(l *live, show config.RankSet, wishes <-chan Wish) *watch {
	head := &fleetHost{name: k.Page.Hosts[0].Name, remote: l.host, gone: make(chan struct{})}
	return &watch{
		view: k.View, show: show, notebook: k.Notebook, wishes: wishes, page: k.Page, control: l.control,
		fleet: &fleet{hosts: []*fleetHost{head}}, connect: k.Connect, tail: true, quiet: l.seen,
	}
}

// ended tells the end of a run that is over.
func (k *Known) ended(s event.State) (int, error) {
	if s.Report == nil {
		return 0, failure(report.ExitUnreachable, "run %s is lost: %s", k.Page.ID, s.Message)
	}
	k.View.Report(s.Report)
	return s.Report.Exit, nil
}

// Ways to stop a run.
const (
	StopGently = iota // workers get their grace
	StopNow           // without grace
	StopDrain         // nothing more is started, and what runs ends by itself
)

// Stop ends a run and waits until it is over. The status is 0 if it was stopped, or had
// ended already.
func (k *Known) Stop(ctx context.Context, how int, wishes <-chan Wish) (int, error) {
	l, err := k.openUnlessLeft(ctx, wishes)
	if err != nil {
		return 0, err
	}
	if l.control == nil {
		defer l.close()
		if l.state.Report == nil {
			return k.ended(l.state)
		}
		k.View.Say("run " + k.Page.ID + " has ended already")
		return report.ExitOK, nil
	}
	request := &pb.StopRequest{Kill: how == StopNow, Drain: how == StopDrain, Exit: report.ExitTerminated, Reason: "muster stop"}
	if request.Drain {
		request.Reason += " --drain"
	}
	err = l.control.whileAlive(ctx, silenceIn(k.Page.Lease), func(ctx context.Context) error { return l.control.stop(ctx, request) })
	if err != nil {
		l.close()
		if no := (*refusal)(nil); errors.As(err, &no) {
			return 0, failure(report.ExitUsage, "%v", err)
		}
		return 0, k.explained(err)
	}
	none, _ := config.ParseRankSet("none")
	status, err := k.watch(l, none, wishes).stay(ctx)
	if status == report.ExitTerminated {
		status = report.ExitOK
	}
	return status, err
}

// Written says whose output is wanted.
type Written struct {
	Ranks   config.RankSet
	Attempt int  // -1: the newest of each rank
	Follow  bool // also what they still write
}

// Logs shows what ranks have written.
func (k *Known) Logs(ctx context.Context, wanted Written) error {
	if err := k.hasRanks(wanted.Ranks); err != nil {
		return err
	}
	if wanted.Follow {
		l, err := k.open(ctx)
		if err != nil {
			return err
		}
		defer l.close()
		if l.control != nil {
			return k.followLogs(ctx, l, wanted.Ranks)
		}
	}
	return k.printLogs(ctx, wanted)
}

func (k *Known) ranksIn(set config.RankSet) []int {
	var ranks []int
	for rank := range k.Page.WorldSize() {
		if set.Has(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func (k *Known) followLogs(ctx context.Context, l *live, set config.RankSet) error {
	request := &pb.LogsRequest{}
	for _, rank := range k.ranksIn(set) {
		request.Ranks = append(request.Ranks, int32(rank))
	}
	err := l.control.whileAlive(ctx, silenceIn(k.Page.Lease), func(ctx context.Context) error {
		return l.control.logs(ctx, request, func() {}, func(c *pb.LogChunk) {
			k.View.Output(hostOf(k.Page, c), int(c.Rank), c.Lane == 1, c.Data, c.End)
		})
	})
	if err != nil && ctx.Err() == nil {
		return k.explained(err)
	}
	return nil
}

// printLogs reads the files, each host's by a connection of its own, and shows rank after
// rank.
func (k *Known) printLogs(ctx context.Context, wanted Written) error {
	state, err := k.State(ctx)
	if err != nil {
		return failure(report.ExitUnreachable, "%v", err)
	}
	newest := state.Attempt
	for _, r := range state.Ranks {
		newest = max(newest, r.Attempt)
	}
	if wanted.Attempt > newest {
		return failure(report.ExitUsage, "run %s has no attempt %d: the newest is %d", k.Page.ID, wanted.Attempt, newest)
	}
	byHost := map[history.Host][]string{}
	for _, rank := range k.ranksIn(wanted.Ranks) {
		host, begun := k.placeOf(state, rank)
		if !begun {
			continue
		}
		attempt := state.Attempt
		if of, started := state.Ranks[rank]; started {
			attempt = of.Attempt
		}
		if wanted.Attempt >= 0 {
			attempt = wanted.Attempt
		}
		byHost[host] = append(byHost[host], output(attempt, rank, 0))
	}
	if list := k.printHosts(ctx, byHost); len(list) > 0 {
		return failure(report.ExitUnreachable, "the output of %d of %s cannot be read: %v", len(list), plural.Of(len(byHost), "host"), list[0].err)
	}
	return nil
}

// placeOf is the host that a rank is on; false: a task that none has begun.
func (k *Known) placeOf(s event.State, rank int) (host history.Host, begun bool) {
	host, settled := k.Page.HostOf(rank)
	if settled {
		return host, true
	}
	of, started := s.Ranks[rank]
	if started {
		host, _ = k.Page.Named(of.Host)
	}
	return host, started
}

// printHosts shows outputs, each host's by a connection of its own, and returns which cannot
// be read.
func (k *Known) printHosts(ctx context.Context, outputs map[history.Host][]string) (list hostErrors) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for host, of := range outputs {
		all.Go(func() {
			if err := k.printHost(ctx, host, of); err != nil {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, hostError{host.Name, err})
			}
		})
	}
	all.Wait()
	return list
}

func (k *Known) printHost(ctx context.Context, h history.Host, sources []string) error {
	host, err := k.connect(ctx, h)
	if err != nil {
		return err
	}
	defer host.Close()
	args := []string{"output", "-run", k.Page.ID, "-of", strings.Join(sources, ",")}
	return ask(ctx, host, args, func(line []byte) error {
		var out message.Output
		if err := json.Unmarshal(line, &out); err != nil {
			return err
		}
		k.View.Output(h.Name, out.Rank, out.Lane == 1, out.Data, out.End)
		return nil
	})
}
