//go:build linux

// Package prepare makes a host ready to start workers: it claims the devices, runs the job's setup, and finds the
// command.
package prepare

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/claim"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/keeper"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/software"
)

// Host is what Run needs of the agent. Its functions may be called beside the loop.
type Host struct {
	Place  rundir.Place
	Home   string
	Reaper *proc.Reaper
	Keeper *keeper.Conn
	// Claimed is called once the devices are claimed, or could not be: other launches wait for it.
	Claimed func()
	Warn    func(text string)
}

// Result is a host that is ready to start workers, or why it is not.
type Result struct {
	Workdir string
	Base    map[string]string // the environment that workers start from
	message.Prepared
}

// Run carries out a command. It runs beside the loop.
func (h Host) Run(c *message.Prepare) Result {
	host := environ.Host(os.Environ())
	r := Result{Base: host}
	if err := h.run(c, &r); err != nil {
		r.Error = err.Error()
		return r
	}
	r.warnOfVisibility(host)
	if _, err := environ.LookPath(c.Program, environ.Layered(r.Base), r.Workdir); err != nil {
		r.Error = fmt.Sprintf("command: %v", err)
		return r
	}
	r.Software = software.Find("", cmp.Or(c.Python, c.Program), r.Base, r.Workdir)
	r.Environ = facts.Telling(r.Base, c.Names)
	return r
}

func (h Host) run(c *message.Prepare, r *Result) (err error) {
	if err := h.claim(c, r); err != nil {
		return err
	}
	if r.Workdir, err = environ.FindWorkdir(c.Workdir, h.Home); err != nil {
		return err
	}
	if c.Setup == "" {
		return nil
	}
	if err := h.setup(c.Setup, r); err != nil {
		return fmt.Errorf("setup%w", err)
	}
	return nil
}

// visibilityVariables show programs devices; ranks get theirs from the plan.
var visibilityVariables = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// warnOfVisibility warns of a choice of devices that setup makes too late: the plan is made before.
func (r *Result) warnOfVisibility(before map[string]string) {
	for _, name := range visibilityVariables {
		if value, set := r.Base[name]; set && value != before[name] {
			r.Warnings = append(r.Warnings, fmt.Sprintf("setup sets %s=%s, which has no effect: ranks get their devices "+
				"of the plan; choose by ranks { devices = [...] }", name, value))
		}
	}
}

// claim takes the run's devices, before all else: other launches wait for that.
func (h Host) claim(c *message.Prepare, r *Result) error {
	defer h.Claimed()
	for _, uuid := range c.Devices {
		claimed, err := claim.Device(uuid, h.Place.Run)
		switch {
		case errors.Is(err, claim.ErrTaken) && c.Claim:
			r.Taken = true
			return fmt.Errorf("device %s was taken by muster's run %s while this one was on its way; start it again",
				uuid, cmp.Or(claim.Holders()[uuid], "of another user"))
		case errors.Is(err, claim.ErrTaken):
			r.Shared = append(r.Shared, uuid)
		case err != nil:
			return err
		}
		for _, file := range claimed {
			if err := h.Keeper.Send(keeper.Message{KeepOpen: true}, file); err != nil {
				return fmt.Errorf("hand claim to keeper: %w", err)
			}
			file.Close() // the keeper has it now
		}
	}
	return nil
}

// setupWrapper runs the user's text as a script of its own, so that its options, its exit and its heredocs cannot reach
// into ours, and then has this program write down the environment: at the script's end, so that it may have an EXIT
// trap of its own, or by ours where it ends with exit. No variable is set after the script has begun: under its set -a
// it would be exported.
const setupWrapper = `
muster_script=$1; shift; muster_dump=("$@"); set --
trap '[ $? = 0 ] && "${muster_dump[@]}"' EXIT
. "$muster_script"
case $? in 0) "${muster_dump[@]}"; muster_dump=(:) ;; *) exit ;; esac
`

func (h Host) setup(text string, r *Result) error {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return fmt.Errorf(": this host has no bash: %v", err)
	}
	script := filepath.Join(h.Place.State, "setup.sh")
	if err := os.WriteFile(script, []byte(text+"\n"), 0o600); err != nil {
		return fmt.Errorf(": %v", err)
	}
	path := filepath.Join(h.Place.State, "setup.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf(": %v", err)
	}
	defer log.Close()
	dump := filepath.Join(h.Place.Sockets, rundir.SetupEnviron) // its values may be secret: never in a shared home
	argv := append(append([]string{"bash", "-c", setupWrapper, "setup", script}, h.Place.Program...), "env", dump)
	child, err := h.Reaper.Start(proc.Spec{
		Path: bash, Argv: argv, Dir: r.Workdir, Group: true, DieWithParent: true,
		Env:   environ.Layered(r.Base, map[string]string{"PWD": r.Workdir}),
		Files: []*os.File{nil, log, log},
	})
	if err != nil {
		return fmt.Errorf(": %v", err)
	}
	awaitPatiently(child.Done, setupPatience, func(passed time.Duration) {
		text := fmt.Sprintf("setup has not ended for %v", passed)
		if last := lastLine(endOf(path)); last != "" {
			text += ": its last line is: " + last
		}
		h.Warn(text + " (all of it: " + path + ")")
	})
	exit := child.Exit()
	r.Code, r.Output, r.Log = exit.Code, endOf(path), path
	if exit != (proc.Exit{}) {
		return fmt.Errorf(" ended with %s", exit)
	}
	dumped, err := os.ReadFile(dump)
	if err != nil {
		return errors.New(" left no environment: does it replace bash's EXIT trap?")
	}
	_ = os.Remove(dump)
	r.Base = environ.Host(strings.Split(string(bytes.TrimSuffix(dumped, []byte{0})), "\x00"))
	return nil
}

// setupPatience is how long setup may take until a warning, and again each time that twice as long has passed.
const setupPatience = 30 * time.Second

// awaitPatiently waits until something is done, and now and then says for how long already.
func awaitPatiently(done <-chan struct{}, patience time.Duration, say func(passed time.Duration)) {
	for passed, wait := time.Duration(0), patience; ; wait = passed {
		select {
		case <-done:
			return
		case <-time.After(wait):
			passed += wait
			say(passed)
		}
	}
}

const (
	maxLine = 200     // bytes that are quoted of a line
	maxTail = 4 << 10 // and of setup's output
)

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	return string(line[max(0, len(line)-maxLine):])
}

func endOf(path string) []byte {
	text, _ := os.ReadFile(path)
	return text[max(0, len(text)-maxTail):]
}
