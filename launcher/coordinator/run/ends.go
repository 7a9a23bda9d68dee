package run

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/event"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/report"
)

// FailedByItself reports whether a worker failed and was not ended by muster.
func FailedByItself(e *message.Ended) bool {
	return e.Sent == "" && (e.Error != "" || e.Signal != "" || e.Code != 0)
}

// Succeeded reports whether a worker ended well, and by itself.
func Succeeded(e *message.Ended) bool {
	return e.Sent == "" && e.Error == "" && e.Signal == "" && e.Code == 0
}

// Unkillable reports whether a worker was reported as ended although its process survived SIGKILL.
func Unkillable(e *message.Ended) bool { return e.Error != "" && e.Sent != "" }

// HowEnded says how a worker ended.
func HowEnded(e *message.Ended) string {
	how := fmt.Sprintf("ended with exit status %d", e.Code)
	switch {
	case e.Error != "" && e.Sent != "":
		return e.Error
	case e.Error != "" && e.Code == 0 && e.Signal == "":
		return "could not be started: " + e.Error
	case e.Signal != "":
		how = "was killed by " + e.Signal
	case e.Code == 0:
		how = "ended well"
	}
	if e.Sent != "" {
		how += " after muster had sent " + e.Sent
	}
	return how
}

// WorkerExit is the run's exit status for a worker's end.
func WorkerExit(e *message.Ended) int {
	switch {
	case e.Error != "" && e.Code == 0 && e.Signal == "":
		return 127
	case e.Signal != "":
		return 128 + int(unix.SignalNum(e.Signal))
	}
	return e.Code
}

// LossExit is the run's exit status for a class of losses.
func LossExit(name string) int {
	switch name {
	case class.Internal:
		return report.ExitInternal
	case class.EarlyExit, class.Hang:
		return report.ExitTimeout
	case class.WrongGPU:
		return report.ExitRefused
	}
	return report.ExitUnreachable
}

// Text makes output fit for JSON.
func Text(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }

// AllEnded reports whether no worker runs.
func (r *Run) AllEnded() bool {
	return !slices.ContainsFunc(r.Ranks, func(k *Rank) bool { return k.Asked && k.Ended == nil && !k.Lost })
}

// FirstFailure is the rank that failed first by itself; Nowhere: none did.
func (r *Run) FirstFailure() int {
	first := Nowhere
	for rank, k := range r.Ranks {
		if k.Ended != nil && FailedByItself(k.Ended) && (first == Nowhere || k.At < r.Ranks[first].At) {
			first = rank
		}
	}
	return first
}

// SayEnded reports a worker's end and what was strange about it.
func (r *Run) SayEnded(e *message.Ended) {
	who, host := r.RankName(e.Rank), r.HostOf(e.Rank)
	r.Say(event.Event{
		Kind: event.Ended, Host: host, Rank: &e.Rank, Log: r.Ranks[e.Rank].Log, Failed: FailedByItself(e),
		Message: fmt.Sprintf("%s on %s %s", who, host, HowEnded(e)),
	})
	if Unkillable(e) {
		r.Warn(host, "%s %s", who, e.Error)
	}
	for _, left := range e.Left {
		r.Warn(host, "%s: %s", who, left)
	}
	if e.Cut {
		r.Warn(host, "%s: its output was still open 2 s after its last known process had ended, and was closed", who)
	}
}

// EndsOf is how a rank ended in its attempt: one end, or none if it was not started.
func (r *Run) EndsOf(k *Rank) []report.End {
	end := report.End{Attempt: k.Attempt, Log: k.Log, Observed: k.Observed}
	switch e := k.Ended; {
	case e != nil:
		end.Exit, end.Signal, end.StoppedByMuster, end.Error, end.Left = e.Code, e.Signal, e.Sent, e.Error, e.Left
	case k.Started:
		end.Error = "its end is not known: " + r.Hosts[k.Host].Name + " was lost"
	default:
		return nil
	}
	return []report.End{end}
}

// GiveUpRanks stops waiting for the ends of a host's ranks.
func (r *Run) GiveUpRanks(host int) {
	for _, k := range r.Ranks {
		if k.Host == host && k.Ended == nil {
			k.Lost = true
		}
	}
}

// StopAll ends all workers.
func (r *Run) StopAll(reason string, kill bool) {
	r.Phase = max(r.Phase, Stopping)
	grace := r.Job.Stop.Grace
	if kill {
		grace = 0
	}
	r.Say(event.Event{
		Kind: event.Stopping, Grace: grace.Seconds(), ByUser: r.Stop != nil, Message: "stopping the workers: " + reason,
	})
	r.SendAll(message.Command{Stop: &message.Stop{Attempt: r.Attempt, Kill: kill, Reason: reason}})
}
