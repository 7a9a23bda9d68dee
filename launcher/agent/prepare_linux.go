package agent

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

// prepared is a host that is ready to start workers.
type prepared struct {
	workdir string
	base    map[string]string // the environment that workers start from
	news    message.Prepared
}

// prepare looks up the work folder, runs setup and finds the command. It runs beside
// the agent's loop and touches none of its state.
func (a *agent) prepare(order *message.Prepare) prepared {
	p := prepared{base: environ.Host(os.Environ())}
	if err := a.claim(order, &p.news); err != nil {
		p.news.Error = err.Error()
		return p
	}
	var err error
	if p.workdir, err = findWorkdir(order.Workdir, a.facts.Home); err != nil {
		p.news.Error = err.Error()
		return p
	}
	if order.Setup != "" {
		if p.base, p.news = a.runSetup(order.Setup, p.workdir, p.base); p.news.Error != "" {
			return p
		}
	}
	p.warnOfVisibility(environ.Host(os.Environ()))
	if _, err := lookPath(order.Program, environ.Layered(p.base), p.workdir); err != nil {
		p.news.Error = fmt.Sprintf("command: %v", err)
		return p
	}
	p.news.Software = software.Find("", cmp.Or(order.Python, order.Program), p.base, p.workdir)
	p.news.Environ = facts.Telling(p.base, order.Names)
	return p
}

// visibilityVariables are what programs are shown devices by; ranks get theirs of the plan.
var visibilityVariables = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// warnOfVisibility tells of a choice of devices that setup has made too late: the plan is
// made before.
func (p *prepared) warnOfVisibility(before map[string]string) {
	for _, name := range visibilityVariables {
		if value, set := p.base[name]; set && value != before[name] {
			p.news.Warnings = append(p.news.Warnings, fmt.Sprintf("setup sets %s=%s, which has no effect: ranks get their devices of the plan; choose by ranks { devices = [...] }", name, value))
		}
	}
}

// claim takes the run's devices, first of all: other launches wait for that.
func (a *agent) claim(order *message.Prepare, news *message.Prepared) error {
	defer a.look.chosen()
	for _, uuid := range order.Devices {
		claimed, err := claim.Device(uuid, a.place.Run)
		switch {
		case errors.Is(err, claim.ErrTaken) && order.Claim:
			news.Taken = true
			return fmt.Errorf("device %s was taken by muster's run %s while this one was on its way; start it again", uuid, cmp.Or(claim.Holders()[uuid], "of another user"))
		case errors.Is(err, claim.ErrTaken):
			news.Shared = append(news.Shared, uuid)
		case err != nil:
			return err
		}
		for _, file := range claimed {
			if err := a.keeper.Send(keeper.Message{KeepOpen: true}, file); err != nil {
				return fmt.Errorf("%w: %w", errNoKeeper, err)
			}
			file.Close() // the keeper has it now
		}
	}
	return nil
}

func findWorkdir(workdir, home string) (string, error) {
	switch {
	case workdir == "" || workdir == "~":
		workdir = home
	case strings.HasPrefix(workdir, "~/"):
		workdir = filepath.Join(home, workdir[2:])
	case !filepath.IsAbs(workdir):
		workdir = filepath.Join(home, workdir)
	}
	info, err := os.Stat(workdir)
	if err != nil {
		return "", fmt.Errorf("workdir: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("workdir: %s is not a folder", workdir)
	}
	return workdir, nil
}

// setupWrapper runs the user's text as a script of its own, so that its options, its
// exit and its heredocs cannot reach into ours, and then has this program write down
// the environment: at the script's end, so that it may have an EXIT trap of its own, or
// by ours where it ends with exit. No variable is set after the script has begun: under
// its set -a it would be exported.
const setupWrapper = `
muster_script=$1; shift; muster_dump=("$@"); set --
trap '[ $? = 0 ] && "${muster_dump[@]}"' EXIT
. "$muster_script"
case $? in 0) "${muster_dump[@]}"; muster_dump=(:) ;; *) exit ;; esac
`

// runSetup runs setup in bash and returns the environment that it leaves behind.
func (a *agent) runSetup(text, workdir string, base map[string]string) (map[string]string, message.Prepared) {
	fail := func(format string, args ...any) (map[string]string, message.Prepared) {
		return nil, message.Prepared{Error: "setup: " + fmt.Sprintf(format, args...)}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return fail("this host has no bash: %v", err)
	}
	script := filepath.Join(a.place.State, "setup.sh")
	if err := os.WriteFile(script, []byte(text+"\n"), 0o600); err != nil {
		return fail("%v", err)
	}
	logPath := filepath.Join(a.place.State, "setup.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fail("%v", err)
	}
	defer log.Close()
	dump := filepath.Join(a.place.Sockets, rundir.SetupEnviron) // its values may be secret: never in a shared home
	argv := append(append([]string{"bash", "-c", setupWrapper, "setup", script}, a.place.Program...), "env", dump)
	child, err := a.reaper.Start(proc.Spec{
		Path: bash, Argv: argv, Dir: workdir, Group: true, DieWithParent: true,
		Env:   environ.Layered(base, map[string]string{"PWD": workdir}),
		Files: []*os.File{nil, log, log},
	})
	if err != nil {
		return fail("%v", err)
	}
	awaitPatiently(child.Done, setupPatience, func(passed time.Duration) {
		text := fmt.Sprintf("setup has not ended for %v", passed)
		if last := lastLine(endOf(logPath)); last != "" {
			text += ": its last line is: " + last
		}
		a.loop.Post(func() {
			a.loop.Report(message.Update{Warning: &message.Warning{Rank: -1, Message: text + " (all of it: " + logPath + ")"}})
		})
	})
	result := message.Prepared{Code: child.Exit().Code, Output: endOf(logPath), Log: logPath}
	if exit := child.Exit(); exit != (proc.Exit{}) {
		result.Error = fmt.Sprintf("setup ended with %s", exit)
		return nil, result
	}
	dumped, err := os.ReadFile(dump)
	if err != nil {
		result.Error = "setup left no environment: does it replace bash's EXIT trap?"
		return nil, result
	}
	_ = os.Remove(dump)
	return environ.Host(strings.Split(string(bytes.TrimSuffix(dumped, []byte{0})), "\x00")), result
}

// setupPatience is how long setup may take until that is said, and again each time that twice
// as long has passed.
const setupPatience = 30 * time.Second

// awaitPatiently waits until something is done, and says now and then for how long already.
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

// longestLine bounds what is quoted of a line.
const longestLine = 200

// lastLine is the last line of a text that is not empty.
func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	return string(line[max(0, len(line)-longestLine):])
}

func endOf(path string) []byte {
	text, _ := os.ReadFile(path)
	return text[max(0, len(text)-tailSize):]
}
