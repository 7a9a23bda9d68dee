package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/launcher/remote"
)

// AskWait bounds how long a host may take to answer, or to say the next line.
const AskWait = 30 * time.Second

// Ask runs the agent's program on a host and hands each line that it prints to take. A program
// that is silent for too long is given up with the connection: the file system that it reads
// may hang.
func Ask(ctx context.Context, host remote.Host, args []string, take func(line []byte) error) error {
	process, err := host.Start(ctx, remote.Launch{Program: "muster-agent", Args: args})
	if err != nil {
		return err
	}
	defer process.Close()
	var late atomic.Bool
	giveUp := time.AfterFunc(AskWait, func() {
		late.Store(true)
		_ = host.Close()
	})
	defer giveUp.Stop()
	stop := context.AfterFunc(ctx, func() { _ = host.Close() })
	defer stop()
	lines := bufio.NewReader(process.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && late.Load():
			return fmt.Errorf("%s: no answer for %v: perhaps a file system there hangs", host.Name(), AskWait)
		case errors.Is(err, io.EOF):
			if err := process.Wait(); err != nil {
				return fmt.Errorf("%s: %w %s", host.Name(), err, process.Stderr())
			}
			return nil
		}
		giveUp.Stop() // a pager may make take wait
		if err == nil {
			err = context.Cause(ctx) // the user may have had enough meanwhile
		}
		if err == nil {
			err = take(line)
		}
		giveUp.Reset(AskWait)
		if err != nil {
			return fmt.Errorf("%s: %w", host.Name(), err)
		}
	}
}
