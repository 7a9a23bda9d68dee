//go:build linux

package mps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

// Processes finds the processes of MPS on this host, and with stop set ends what runs of this user that are gone have
// left.
func Processes(reaper *proc.Reaper, stop bool) facts.MPSThere {
	f := &finder{host: facts.Identity(""), reaper: reaper}
	f.find()
	if stop {
		f.stop()
	}
	return f.found
}

type finder struct {
	host    string
	reaper  *proc.Reaper
	program string
	found   facts.MPSThere
	ids     []proc.ID // of found.Processes
}

func (f *finder) find() {
	host := facts.LookForMPS("", environ.Host(os.Environ()))
	f.program = host.Program
	daemons := map[int]bool{}
	for _, d := range host.Daemons {
		daemons[d.PID] = true
		one := facts.MPSProcess{PID: d.PID, User: d.User, Run: d.Run, Pipe: d.Pipe}
		if d.Devices != nil {
			one.Device = *d.Devices
		}
		if d.Told && f.program != "" {
			one.Clients = f.clients(d.Pipe)
		}
		f.add(one)
	}
	for _, s := range proc.All() {
		run, marked := proc.EnvironOf(s.PID, keeper.RunVariable)
		if !isMPS(s) || daemons[s.PID] || daemons[s.Parent] || !marked || s.State == 'Z' {
			continue
		}
		pipe, _ := proc.EnvironOf(s.PID, mps.PipeDirectory)
		device, _ := proc.EnvironOf(s.PID, "CUDA_VISIBLE_DEVICES")
		f.add(facts.MPSProcess{
			PID: s.PID, Server: true, User: fmt.Sprint(proc.Owner(s.PID)), Run: run, Pipe: pipe, Device: device,
		})
	}
}

func (f *finder) add(p facts.MPSProcess) {
	p.State = facts.MPSServes
	if p.Run != "" && !keeper.Lives(p.Run, f.host) {
		p.State = facts.MPSLeft
	}
	s, _ := proc.StatOf(p.PID) // the zero identity is nobody's
	f.found.Processes, f.ids = append(f.found.Processes, p), append(f.ids, s.ID)
}

func (f *finder) clients(pipe string) (all []int) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	c := controlOf(f.reaper, f.program, pipe)
	servers, err := c.Servers(ctx)
	if err != nil {
		return nil
	}
	for _, server := range servers {
		clients, _ := c.Clients(ctx, server) // a server that does not answer shows none
		all = append(all, clients...)
	}
	return all
}

// stop ends what is left: daemons by their command, then all by identity.
func (f *finder) stop() {
	for i, p := range f.found.Processes {
		if p.State != facts.MPSLeft || proc.Owner(p.PID) != os.Getuid() {
			continue
		}
		if !p.Server && f.program != "" {
			quit(controlOf(f.reaper, f.program, p.Pipe))
		}
		killAll(func(s proc.Stat) bool { return s.ID == f.ids[i] || belongsTo(s, p.Run, p.Pipe) })
		if proc.Lives(f.ids[i]) {
			f.found.Left = append(f.found.Left, fmt.Sprintf("pid %d cannot be ended (state D?)", p.PID))
			continue
		}
		f.found.Processes[i].State = facts.MPSStopped
		if base := filepath.Dir(filepath.Dir(p.Pipe)); filepath.Base(filepath.Dir(p.Pipe)) == rundir.MPSPipes {
			rundir.Remove(base)
		}
	}
}
