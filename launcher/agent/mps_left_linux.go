package agent

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

// mpsMain prints what there is of MPS on this host, and with -stop ends what runs of this
// user have left that are no more.
func mpsMain(_, args []string) error {
	flags := flag.NewFlagSet("mps", flag.ContinueOnError)
	stop := flags.Bool("stop", false, "end what is left")
	if err := flags.Parse(args); err != nil {
		return err
	}
	reaper, err := proc.NewReaper()
	if err != nil {
		return err
	}
	l := &mpsLeft{host: facts.Identity(""), reaper: reaper}
	l.look()
	if *stop {
		l.stop()
	}
	_, err = os.Stdout.Write(append(message.Encode(l.there), '\n'))
	return err
}

// mpsLeft looks for what runs have left of MPS.
type mpsLeft struct {
	host    string
	reaper  *proc.Reaper
	program string
	there   facts.MPSThere
	ids     []proc.ID // of there.Processes
}

func (l *mpsLeft) look() {
	found := facts.LookForMPS("", hostEnviron(os.Environ()))
	l.program = found.Program
	daemons := map[int]bool{}
	for _, d := range found.Daemons {
		daemons[d.PID] = true
		one := facts.MPSProcess{PID: d.PID, User: d.User, Run: d.Run, Pipe: d.Pipe, State: l.stateOf(d.Run)}
		if d.Devices != nil {
			one.Device = *d.Devices
		}
		if d.Told && l.program != "" {
			one.Clients = l.clients(d.Pipe)
		}
		l.add(one)
	}
	for _, s := range proc.All() {
		run, marked := proc.EnvironOf(s.PID, keeper.RunVariable)
		if !isOfMPS(s) || daemons[s.PID] || daemons[s.Parent] || !marked || s.State == 'Z' {
			continue
		}
		pipe, _ := proc.EnvironOf(s.PID, mps.PipeDirectory)
		device, _ := proc.EnvironOf(s.PID, "CUDA_VISIBLE_DEVICES")
		l.add(facts.MPSProcess{PID: s.PID, Server: true, User: fmt.Sprint(proc.Owner(s.PID)), Run: run, Pipe: pipe, Device: device, State: l.stateOf(run)})
	}
}

func (l *mpsLeft) add(p facts.MPSProcess) {
	id := proc.ID{}
	if s, err := proc.StatOf(p.PID); err == nil {
		id = s.ID
	}
	l.there.Processes, l.ids = append(l.there.Processes, p), append(l.ids, id)
}

// stateOf is that of a process with a run's mark.
func (l *mpsLeft) stateOf(run string) string {
	if run != "" && !keeper.Lives(run, l.host) {
		return facts.MPSLeft
	}
	return facts.MPSServes
}

func (l *mpsLeft) clients(pipe string) (all []int) {
	ctx, cancel := context.WithTimeout(context.Background(), mpsAnswerWait)
	defer cancel()
	c := control(l.reaper, l.program, pipe)
	servers, err := c.Servers(ctx)
	if err != nil {
		return nil
	}
	for _, server := range servers {
		clients, _ := c.Clients(ctx, server) // what does not answer shows none
		all = append(all, clients...)
	}
	return all
}

// stop ends what is left: daemons by their command, then all by identity.
func (l *mpsLeft) stop() {
	for i, p := range l.there.Processes {
		if p.State != facts.MPSLeft || proc.Owner(p.PID) != os.Getuid() {
			continue
		}
		if !p.Server && l.program != "" {
			quit(control(l.reaper, l.program, p.Pipe))
		}
		l.endAll(p, l.ids[i])
		if proc.Lives(l.ids[i]) {
			l.there.Left = append(l.there.Left, fmt.Sprintf("pid %d cannot be ended (state D?)", p.PID))
			continue
		}
		l.there.Processes[i].State = facts.MPSStopped
		if base := filepath.Dir(filepath.Dir(p.Pipe)); filepath.Base(filepath.Dir(p.Pipe)) == rundir.MPSPipes {
			rundir.Remove(base)
		}
	}
}

// endAll kills a process of MPS and those of the same run and pipe directory.
func (l *mpsLeft) endAll(p facts.MPSProcess, id proc.ID) {
	for deadline := time.Now().Add(proc.KillWait); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		found := false
		for _, s := range proc.All() {
			if (s.ID == id || isOfMPS(s) && ofDaemon(s.PID, p.Run, p.Pipe)) && s.State != 'Z' {
				found = true
				_ = proc.Signal(s.ID, unix.SIGKILL) // what resists shows in the next round
			}
		}
		if !found {
			return
		}
	}
}
