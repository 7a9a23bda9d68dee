package agent

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
)

// mpsSpec is a daemon of MPS as the keeper starts it, and ends it where the agent cannot.
type mpsSpec struct {
	Program string `json:"program"` // path of nvidia-cuda-mps-control
	Pipe    string `json:"pipe"`
	Log     string `json:"log"`
	Device  string `json:"device"` // UUID
	Run     string `json:"run"`
}

// process is what is started: in the foreground, so that the daemon is a child whose end is
// seen, and for one device only.
func (m *mpsSpec) process(_ pluginOrder, lent proc.Spec) proc.Spec {
	lent.Path, lent.Argv = m.Program, []string{mps.ControlProgram, "-f"}
	lent.Files = lent.Files[:3] // its program is found by path, so that it bears its name
	lent.Env = append(mpsEnviron(),
		mps.PipeDirectory+"="+m.Pipe, mps.LogDirectory+"="+m.Log,
		"CUDA_VISIBLE_DEVICES="+m.Device, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
		mark+"="+m.Run, // the server has it too
	)
	return lent
}

// allowFiles raises the limit of open files of a daemon, as far as its hard limit goes: that
// of the keeper, which it has got, is low.
func allowFiles(pid int) {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit) != nil {
		return
	}
	limit.Cur = max(limit.Cur, min(limit.Max, mps.OpenFiles))
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil) // few clients do with less
}

// servedMPS is a daemon that the keeper has started.
type servedMPS struct {
	mpsSpec
	child *proc.Child
}

// How long daemons may take to end.
const (
	quitSeconds = 3 // for the daemon's own patience with its servers
	quitWait    = quitSeconds*time.Second + 3*time.Second
)

// quit has a daemon end by its own command, and waits for that.
func quit(c mps.Control) {
	ctx, cancel := context.WithTimeout(context.Background(), quitWait)
	defer cancel()
	_ = c.Quit(ctx, quitSeconds) // what is left then is killed
}

// below are the processes of a daemon: itself, and what it has started.
func (m servedMPS) below(all []proc.Stat) map[proc.ID]bool {
	found := map[proc.ID]bool{m.child.ID: true}
	for _, s := range proc.Below(m.child.ID.PID, all) {
		found[s.ID] = true
	}
	return found
}

// endMPS ends the daemons that an agent has left, once its ranks are gone: each by its own
// command first, so that its server lets the device go as it should.
func (k *keeper) endMPS() {
	ended := make(chan struct{})
	for _, m := range k.mps {
		go func() {
			select {
			case <-m.child.Done:
			default:
				quit(control(k.reaper, m.Program, m.Pipe))
			}
			ended <- struct{}{}
		}()
	}
	for range k.mps {
		<-ended
	}
}

// ofMPS returns what tells the processes of the keeper's daemons, as they are now.
func (k *keeper) ofMPS() func(proc.Stat) bool {
	all := proc.All()
	mine := map[proc.ID]bool{}
	for _, m := range k.mps {
		for id := range m.below(all) {
			mine[id] = true
		}
	}
	return func(s proc.Stat) bool { return mine[s.ID] }
}
