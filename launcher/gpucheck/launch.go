package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// worker is what a rank says of itself.
type worker struct {
	Rank      string   `json:"rank"`
	LocalRank string   `json:"local_rank"`
	PID       int      `json:"pid"`
	Visible   []string `json:"visible"` // UUIDs in CUDA's order
	UUID      string   `json:"uuid"`
	PCI       string   `json:"pci"`
	CPUs      string   `json:"cpus"`   // such as "0-3,8"
	Memory    *tensors `json:"memory"` // of torch; nil: it has none
	Share     *share   `json:"share"`  // nil: it does not say
}

// launch is a program whose workers are there: muster run, or a worker by itself.
type launch struct {
	s       *session
	job     job
	argv    []string
	begin   time.Time
	cmd     *exec.Cmd
	stderr  stream
	text    []string      // of the output, likewise
	workers chan worker   // closed at the end of the output
	ended   chan struct{} // closed once it has ended
}

// stream takes in what a program says while others look at it.
type stream struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start starts a program whose output has the lines of workers. Whoever starts one ends it.
func (s *session) start(ctx context.Context, j job, env []string, argv ...string) (*launch, error) {
	cmd := s.program(ctx, argv...)
	cmd.Env = append(cmd.Env, env...)
	l := &launch{s: s, job: j, argv: argv, begin: time.Now(), cmd: cmd, workers: make(chan worker, 4096), ended: make(chan struct{})}
	cmd.Stderr = &l.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(l.ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20) // a line of a rank may be long
		for lines.Scan() {
			l.text = append(l.text, lines.Text())
			if w, is := readWorker(lines.Text()); is {
				l.workers <- w
			}
		}
		close(l.workers)
		_ = cmd.Wait() // its status is looked at
	}()
	return l, nil
}

// run starts muster run.
func (s *session) run(ctx context.Context, j job) (*launch, error) {
	return s.start(ctx, j, nil, s.muster, "run", j.path)
}

// readWorker reads a line of a worker, before which muster writes whose it is.
func readWorker(line string) (worker, bool) {
	_, text, is := strings.Cut(line, "{")
	var w worker
	if !is || json.Unmarshal([]byte("{"+text), &w) != nil || w.UUID == "" {
		return w, false
	}
	return w, true
}

// await waits for the lines of n workers.
func (l *launch) await(ctx context.Context, n int) ([]worker, error) {
	var found []worker
	for len(found) < n {
		select {
		case w, is := <-l.workers:
			if !is {
				<-l.ended
				return found, fmt.Errorf("ended with status %d after %d of %d workers: %s", l.status(), len(found), n, l.said().last())
			}
			found = append(found, w)
			l.s.pids[w.PID] = true
		case <-ctx.Done():
			return found, fmt.Errorf("%d of %d workers within the time", len(found), n)
		}
	}
	return found, nil
}

// end lets the workers end and waits for the program.
func (l *launch) end(ctx context.Context) error {
	if err := os.WriteFile(l.job.stop, nil, 0o644); err != nil {
		_ = l.cmd.Cancel() // the limit of the worker's stay ends it too
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		<-l.ended // asked to end by the context, or killed
	}
	o := l.said()
	l.s.logCommand(l.argv, o, nil)
	l.s.keep(filepath.Join(runFolder, l.job.name+".txt"), o.all())
	if l.status() != 0 {
		return fmt.Errorf("ended with status %d: %s", l.status(), o.last())
	}
	return nil
}

// finish is end for defer.
func (l *launch) finish(ctx context.Context, err *error) {
	*err = errors.Join(*err, l.end(ctx))
}

// status is the exit status of a launch that has ended.
func (l *launch) status() int { return l.cmd.ProcessState.ExitCode() }

// said is what a launch that has ended has said.
func (l *launch) said() said {
	return said{strings.Join(l.text, "\n") + "\n", l.stderr.String(), l.status(), time.Since(l.begin)}
}
