package agent

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/mps"
	"github.com/muster-dev/muster/launcher/proc"
)

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

// control talks to the daemon of MPS in a pipe directory.
func control(reaper *proc.Reaper, program, pipe string) mps.Control {
	env := append(mpsEnviron(), mps.PipeDirectory+"="+pipe)
	return mps.Control{Ask: func(ctx context.Context, commands ...string) (mps.Answer, error) {
		text, exit, err := reaper.Run(ctx, []string{program}, env, strings.Join(commands, "\n")+"\n")
		return mps.Answer{Text: text, Code: exit.Status()}, err
	}}
}

// cudaVariables is how the variables of CUDA begin.
const cudaVariables = "CUDA_"

// mpsEnviron is this process's environment without CUDA's variables, which would reach the
// daemon and all of its clients.
func mpsEnviron() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, cudaVariables) {
			env = append(env, entry)
		}
	}
	return env
}
