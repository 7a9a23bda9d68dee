package launcher

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/muster-dev/muster/launcher/config"
	pb "github.com/muster-dev/muster/launcher/coordinator/controlpb"
	"github.com/muster-dev/muster/launcher/fleet"
	"github.com/muster-dev/muster/launcher/history"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/plural"
	"github.com/muster-dev/muster/launcher/report"
	"github.com/muster-dev/muster/launcher/session"
)

// Written says whose output is wanted.
type Written struct {
	Ranks   config.RankSet
	Attempt int  // -1: the newest of each rank
	Follow  bool // also what they still write
}

// Logs shows what ranks have written.
func (k *Known) Logs(ctx context.Context, wanted Written) error {
	if err := k.checkRanks(wanted.Ranks); err != nil {
		return err
	}
	if wanted.Follow {
		l, err := k.Open(ctx)
		if err != nil {
			return err
		}
		defer l.Close()
		if l.Control != nil {
			return k.followLogs(ctx, l.Control, wanted.Ranks)
		}
	}
	return k.printLogs(ctx, wanted)
}

func (k *Known) followLogs(ctx context.Context, c *session.Client, set config.RankSet) error {
	request := &pb.LogsRequest{}
	for _, rank := range set.In(k.Run.WorldSize()) {
		request.Ranks = append(request.Ranks, int32(rank))
	}
	err := c.WhileAlive(ctx, session.MaxSilence(k.Run.Lease), func(ctx context.Context) error {
		return c.Logs(ctx, request, func() {}, func(c *pb.LogChunk) {
			k.Observer.Output(session.HostOf(k.Run, c), int(c.Rank), c.Lane == 1, c.Data, c.End)
		})
	})
	if err != nil && ctx.Err() == nil {
		return k.explain(err)
	}
	return nil
}

// printLogs reads the files and shows rank after rank.
func (k *Known) printLogs(ctx context.Context, wanted Written) error {
	state, err := k.State(ctx)
	if err != nil {
		return report.Errorf(report.ExitUnreachable, "%v", err)
	}
	newest := state.Attempt
	for _, r := range state.Ranks {
		newest = max(newest, r.Attempt)
	}
	if wanted.Attempt > newest {
		return report.Errorf(report.ExitUsage, "run %s has no attempt %d: the newest is %d", k.Run.ID, wanted.Attempt, newest)
	}
	pieces := map[history.Host][]string{}
	for _, rank := range wanted.Ranks.In(k.Run.WorldSize()) {
		host, begun := session.Place(k.Run, state, rank)
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
		pieces[host] = append(pieces[host], session.Piece(attempt, rank, 0))
	}
	if list := k.ReadOutput(ctx, pieces); len(list) > 0 {
		return report.Errorf(report.ExitUnreachable, "the output of %d of %s cannot be read: %v",
			len(list), plural.Of(len(pieces), "host"), list[0].Err)
	}
	return nil
}

// ReadOutput shows pieces of output, each host's over a connection of its own, and returns which
// cannot be read.
func (k *Known) ReadOutput(ctx context.Context, pieces map[history.Host][]string) (list fleet.HostErrors) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for host, of := range pieces {
		all.Go(func() {
			args := []string{"output", "-run", k.Run.ID, "-of", strings.Join(of, ",")}
			err := askOnce(ctx, k.Connect, targetOfRun(host), args, func(line []byte) error {
				var out message.Output
				err := json.Unmarshal(line, &out)
				if err == nil {
					k.Observer.Output(host.Name, out.Rank, out.Lane == 1, out.Data, out.End)
				}
				return err
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, fleet.HostError{Host: host.Name, Err: err})
			}
		})
	}
	all.Wait()
	return list
}
