//go:build linux

package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/proc"
)

// Process is what the keeper starts for the agent. The files of its standard output and error come along, and its
// program's where that is executed by descriptor.
type Process struct {
	Number int      `json:"number"`
	Path   string   `json:"path,omitempty"` // "": the last file that comes along
	Argv   []string `json:"argv"`
	// Env is what it gets besides the keeper's environment, without variables that begin with DropEnv.
	Env     []string `json:"env"`
	DropEnv string   `json:"drop_env,omitempty"`
	// OpenFiles is what its limit of open files is raised to, as far as the hard limit goes; 0 leaves it.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Quit is what the same program, run once more, reads to end the process; "": the process is killed. It applies
	// where the agent died, after the workers, which may be the process's clients, have ended.
	Quit string `json:"quit,omitempty"`
}

type processState struct {
	Number int           `json:"number"`
	PID    int           `json:"pid,omitempty"`
	Error  string        `json:"error,omitempty"` // why it was not started
	Errno  syscall.Errno `json:"errno,omitempty"` // the kernel's reason
	Ended  string        `json:"ended,omitempty"` // how
}

// quitWait bounds how long a process may take to end after Quit.
const quitWait = 6 * time.Second

type running struct {
	Process
	env   []string
	child *proc.Child
}

type processes struct {
	conn   *Conn
	reaper *proc.Reaper
	all    map[int]*running // by number
}

// start starts a process as a child of the keeper, which outlives the agent.
func (ps *processes) start(p Process, files []*os.File) {
	defer closeAll(files)
	state := &processState{Number: p.Number}
	child, env, err := ps.spawn(p, files)
	if err != nil {
		state.Error = err.Error()
		errors.As(err, &state.Errno)
		_ = ps.conn.Send(Message{Process: state})
		return
	}
	maps.DeleteFunc(ps.all, func(_ int, old *running) bool { return old.Quit == "" && old.child.HasEnded() })
	ps.all[p.Number] = &running{p, env, child}
	state.PID = child.ID.PID
	_ = ps.conn.Send(Message{Process: state}) // an agent that is gone shows in its exit
	go func() {
		<-child.Done
		_ = ps.conn.Send(Message{Process: &processState{Number: p.Number, Ended: child.Exit().String()}})
	}()
}

func (ps *processes) spawn(p Process, files []*os.File) (*proc.Child, []string, error) {
	if len(files) < 2 || p.Path == "" && len(files) < maxFiles {
		return nil, nil, errors.New("its files did not arrive")
	}
	env := os.Environ()
	if p.DropEnv != "" {
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, p.DropEnv) })
	}
	env = append(env, p.Env...)
	path := p.Path
	if path == "" {
		path = fmt.Sprintf("/proc/self/fd/%d", len(files))
	}
	child, err := ps.reaper.Start(proc.Spec{
		Path: path, Argv: p.Argv, Env: env, Dir: "/",
		Files: append([]*os.File{nil}, files...), Group: true, GroupDies: true, DieWithParent: true,
	})
	if err == nil && p.OpenFiles > 0 {
		raiseOpenFiles(child.ID.PID, p.OpenFiles)
	}
	return child, env, err
}

func raiseOpenFiles(pid int, files uint64) {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit) != nil {
		return
	}
	limit.Cur = max(limit.Cur, min(limit.Max, files))
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil) // the process works with fewer too
}

func (ps *processes) kill(number int) {
	if p := ps.all[number]; p != nil && !p.child.HasEnded() {
		_ = unix.Kill(-p.child.ID.PID, unix.SIGKILL)
	}
}

// quitters are the processes that end by Quit, in any state, and serves reports whether a process is one of them or was
// started by one.
func (ps *processes) quitters() (all []*running, serves func(proc.Stat) bool) {
	table, theirs := proc.All(), map[proc.ID]bool{}
	for _, p := range ps.all {
		if p.Quit == "" {
			continue
		}
		all = append(all, p)
		theirs[p.child.ID] = true
		for _, s := range proc.Below(p.child.ID.PID, table) {
			theirs[s.ID] = true
		}
	}
	return all, func(s proc.Stat) bool { return theirs[s.ID] }
}

// quit ends processes that the agent has left by their own command, all at once.
func (ps *processes) quit(all []*running) {
	ended := make(chan struct{})
	for _, p := range all {
		go func() {
			if !p.child.HasEnded() {
				ctx, cancel := context.WithTimeout(context.Background(), quitWait)
				defer cancel()
				_, _, _ = ps.reaper.Run(ctx, []string{p.Path}, p.env, p.Quit) // what is left then is killed
			}
			ended <- struct{}{}
		}()
	}
	for range all {
		<-ended
	}
}
