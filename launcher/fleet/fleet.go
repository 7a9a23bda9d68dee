// Package fleet connects a launcher to the hosts of a run, all at once, and starts an agent on
// each.
package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/remote"
)

// Connector connects to one host.
type Connector func(ctx context.Context, target remote.Target) (remote.Host, error)

// Fleet is the hosts that a launcher is connected to, the head host first.
type Fleet struct {
	Hosts []*Host
}

// Invitation is a host to be brought in and what to start there.
type Invitation struct {
	Name   string // that the user knows it by
	Target remote.Target
	Launch remote.Launch
}

// Assemble connects to all hosts and starts an agent on each. It returns when every host has
// said hello or has failed; done hears how many are through.
func Assemble(ctx context.Context, connect Connector, invited []Invitation, done func(n int)) (*Fleet, error) {
	f := &Fleet{Hosts: make([]*Host, len(invited))}
	errs := make([]error, len(invited))
	var mu sync.Mutex
	finished := 0
	var all sync.WaitGroup
	for i, in := range invited {
		f.Hosts[i] = newHost(in.Name)
		all.Go(func() {
			errs[i] = f.Hosts[i].begin(ctx, connect, in)
			mu.Lock()
			defer mu.Unlock()
			finished++
			done(finished)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		f.Dismiss(EndWait)
		return nil, context.Cause(ctx)
	}
	var list HostErrors
	for i, err := range errs {
		if err != nil {
			list = append(list, HostError{invited[i].Name, err})
		}
	}
	if len(list) > 0 {
		f.Dismiss(EndWait)
		return nil, list.Failure(len(invited))
	}
	return f, nil
}

// Attached is the head host of a run that was launched earlier, over a connection of its own.
func Attached(name string, connection remote.Host) *Fleet {
	h := newHost(name)
	h.remote = connection
	return &Fleet{Hosts: []*Host{h}}
}

// Facts returns the facts of the hosts, in their order.
func (f *Fleet) Facts() []facts.Host {
	all := make([]facts.Host, len(f.Hosts))
	for i, h := range f.Hosts {
		all[i] = h.Hello.Facts
	}
	return all
}

// EndWait bounds how long keepers may take to end once their work is over.
const EndWait = 10 * time.Second

// Dismiss lets all hosts go: agents that have no run end when their input ends. It waits until
// the keepers are gone and returns the names of those that are not.
func (f *Fleet) Dismiss(patience time.Duration) []string {
	for _, h := range f.Hosts {
		if h.process != nil {
			h.process.Stdin.Close()
		}
	}
	timeout := time.After(patience)
	var left []string
	for _, h := range f.Hosts {
		if h.process == nil {
			continue
		}
		select {
		case <-h.gone:
		case <-timeout:
			left = append(left, h.Name)
		}
	}
	f.Leave()
	return left
}

// Alive names the hosts whose keeper was not seen to end.
func (f *Fleet) Alive() []string {
	var names []string
	for _, h := range f.Hosts {
		select {
		case <-h.gone:
		default:
			names = append(names, h.Name)
		}
	}
	return names
}

// Leave closes the connections and waits for nothing.
func (f *Fleet) Leave() {
	var closing sync.WaitGroup
	for _, h := range f.Hosts {
		closing.Go(h.Disconnect)
	}
	closing.Wait()
}

// OthersHaveEnded waits until the keepers on all hosts but the head host have ended, and reports
// whether that was seen: the run is over then, whatever became of its head host.
func (f *Fleet) OthersHaveEnded(ctx context.Context) bool {
	others := f.Hosts[1:]
	for _, h := range others {
		select {
		case <-h.Gone():
		case <-ctx.Done():
			return false
		}
		if h.IsLost() {
			return false
		}
	}
	return len(others) > 0
}

// DescribeEnds says which hosts were seen to end their workers.
func (f *Fleet) DescribeEnds(left []string) string {
	var ended []string
	for _, h := range f.Hosts {
		if !h.IsAttached() && !slices.Contains(left, h.Name) && !h.IsLost() {
			ended = append(ended, h.Name)
		}
	}
	text := "no host was seen to end its workers"
	if len(ended) > 0 {
		text = "workers have ended on " + strings.Join(ended, ", ")
	}
	if len(left) > 0 {
		text += "; not seen to end on " + strings.Join(left, ", ")
	}
	return text
}
