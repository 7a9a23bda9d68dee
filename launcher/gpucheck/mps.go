package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sharers is how many workers share a GPU by MPS.
const sharers = 4

// Memory of each of them, in bytes: what it may have, and more than that.
const (
	mpsLimit  = 2 << 30
	mpsBeyond = 3 << 30
)

// mpsBlock gives each of them a quarter of the threads, and less memory than any card has.
const mpsBlock = "  mps {\n    ranks_per_gpu            = 4\n    active_thread_percentage = 25\n    pinned_memory_limit      = \"2GiB\"\n  }\n  stop { grace = \"2s\" }\n"

// mpsWait is how long what is to be seen of MPS, or to be gone, may take.
const mpsWait = 15 * time.Second

// sharing is a run whose workers share a GPU by MPS.
type sharing struct {
	*launch
	s       *session
	workers []worker
	pipe    string // of its daemon
}

// startSharing starts one, and waits until its workers have the GPU. What driver or sandbox
// say against MPS is kept, and makes the check impossible.
func (s *session) startSharing(ctx context.Context, what string) (*sharing, error) {
	if err := s.whole(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
		return nil, impossible("this machine has no nvidia-cuda-mps-control")
	}
	j := s.name(what)
	argv, err := s.sharer(ctx, j)
	if err != nil {
		return nil, err
	}
	s.keep(filepath.Join(runFolder, j.name+".hcl"),
		jobText(argv, []string{"devices = [" + quote(s.usable[0].UUID) + "]", `backend = "none"`}, mpsBlock))
	l, err := s.run(ctx, j)
	if err != nil {
		return nil, err
	}
	workers, err := l.await(ctx, sharers)
	if err != nil {
		return nil, s.refusedMPS(l, err)
	}
	pipe, err := variableOf(workers[0].PID, "CUDA_MPS_PIPE_DIRECTORY")
	if err != nil {
		return nil, errors.Join(err, l.end(ctx))
	}
	return &sharing{l, s, workers, pipe}, nil
}

// sharer is what shares a GPU: a program of torch, or where there is none a worker that only
// holds memory.
func (s *session) sharer(ctx context.Context, j job) ([]string, error) {
	if err := s.findTorch(ctx); err != nil {
		s.note("not by torch: %v", err)
		return s.argv("64MiB", j.stop), nil
	}
	path, err := s.script("shared.py")
	return []string{s.python, path, j.stop, strconv.Itoa(mpsBeyond)}, err
}

// refusedMPS tells a machine on which MPS cannot be had from a fault of muster: the words of
// daemon, server or driver are to be among muster's.
func (s *session) refusedMPS(l *launch, err error) error {
	<-l.ended
	text := l.said().all()
	s.keep("mps-refused.txt", text)
	for _, words := range []string{"MPS for GPU", "MPS client", "MPS server", "the MPS daemon", "busy or unavailable"} {
		if at := strings.Index(text, words); at >= 0 {
			line, _, _ := strings.Cut(text[at:], "\n")
			return impossible("MPS cannot be had here (see mps-refused.txt): " + line)
		}
	}
	return err
}

// variableOf reads a variable of a process.
func variableOf(pid int, name string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", err
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if value, is := strings.CutPrefix(entry, name+"="); is {
			return value, nil
		}
	}
	return "", fmt.Errorf("the worker with pid %d has no %s", pid, name)
}

// ask gives the run's daemon a command, with the program that NVIDIA brings.
func (h *sharing) ask(ctx context.Context, command string) (string, error) {
	o, err := h.s.command(ctx, "sh", "-c", "echo "+command+" | CUDA_MPS_PIPE_DIRECTORY='"+h.pipe+"' nvidia-cuda-mps-control")
	if err != nil {
		return "", err
	}
	if o.exit != 0 {
		return "", fmt.Errorf("%s: status %d: %s", command, o.exit, o.last())
	}
	return strings.TrimSpace(o.all()), nil
}

// checkMPS has workers share a GPU, and asks the daemon itself for clients and limits.
func checkMPS(ctx context.Context, s *session) (err error) {
	h, err := s.startSharing(ctx, "mps")
	if err != nil {
		return err
	}
	defer h.finish(ctx, &err)
	server, err := h.ask(ctx, "get_server_list")
	if err != nil {
		return err
	}
	if server == "" {
		return impossible("the workers run, and their MPS daemon has no server: this machine's CUDA does not use MPS")
	}
	if err := h.areClients(ctx, server); err != nil {
		return err
	}
	for command, want := range map[string]string{
		"get_default_active_thread_percentage":         "25",
		"get_default_device_pinned_mem_limit 0":        "2G",
		"get_active_thread_percentage " + server:       "25",
		"get_device_pinned_mem_limit " + server + " 0": "2G",
	} {
		got, err := h.ask(ctx, command)
		s.note("%s: %s", command, got)
		if err == nil && !strings.HasPrefix(got, want) {
			err = fmt.Errorf("%s answers %q, want %s", command, got, want)
		}
		if err != nil {
			return err
		}
	}
	for _, w := range h.workers {
		if err := h.hasItsShare(w); err != nil {
			return err
		}
		if limit, err := variableOf(w.PID, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"); err != nil || limit != "0=2G" {
			return fmt.Errorf("the worker with pid %d has the limit %q: %w", w.PID, limit, err)
		}
	}
	return s.statusTells(ctx)
}

// share is what a program of torch says that it has of a GPU by MPS.
type share struct {
	Right      bool    `json:"right"`   // it computes
	Refused    bool    `json:"refused"` // more memory than the limit
	Free       float64 `json:"free"`    // bytes, with the limit
	Processors int     `json:"processors"`
}

// hasItsShare sees that a worker is on the GPU, and that the limits hold there.
func (h *sharing) hasItsShare(w worker) error {
	if w.UUID != h.s.usable[0].UUID {
		return fmt.Errorf("the worker with pid %d is on %s, not on %s", w.PID, w.UUID, h.s.usable[0].UUID)
	}
	m := w.Share
	if m == nil {
		return nil // not by torch, which was noted
	}
	h.s.note("rank %s: %d multiprocessors, %.0f MiB free", w.Rank, m.Processors, m.Free/(1<<20))
	switch {
	case !m.Right:
		return fmt.Errorf("rank %s computes wrongly as a client of MPS", w.Rank)
	case !m.Refused:
		return fmt.Errorf("rank %s has a limit of %d bytes, and was given %d", w.Rank, mpsLimit, mpsBeyond)
	case m.Free > mpsLimit:
		return fmt.Errorf("rank %s has a limit of %d bytes, and %.0f free", w.Rank, mpsLimit, m.Free)
	}
	return nil
}

// areClients compares the daemon's clients with the workers.
func (h *sharing) areClients(ctx context.Context, server string) error {
	list, err := h.ask(ctx, "get_client_list "+server)
	if err != nil {
		return err
	}
	h.s.note("clients of server %s: %s", server, strings.Join(strings.Fields(list), " "))
	clients := strings.Fields(list)
	for _, w := range h.workers {
		if !slices.Contains(clients, strconv.Itoa(w.PID)) {
			return fmt.Errorf("the worker with pid %d is no client of server %s: %v", w.PID, server, clients)
		}
	}
	return nil
}

// statusTells waits until muster status tells of all clients.
func (s *session) statusTells(ctx context.Context) error {
	last := ""
	for deadline := time.Now().Add(mpsWait); time.Now().Before(deadline) && ctx.Err() == nil; {
		o, err := s.command(ctx, s.muster, "status", "-", "--json")
		if err != nil {
			return err
		}
		var status struct {
			MPS []struct {
				Ranks []struct {
					Client int `json:"client_pid"`
				}
			}
		}
		if err := json.Unmarshal([]byte(o.stdout), &status); err != nil {
			return fmt.Errorf("muster status: %w: %s", err, o.last())
		}
		seen := 0
		for _, g := range status.MPS {
			for _, r := range g.Ranks {
				if r.Client != 0 {
					seen++
				}
			}
		}
		if seen == sharers {
			return nil
		}
		last = o.stdout
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("muster status does not tell of %d clients: %s", sharers, last)
}

// checkMPSEnds kills a worker of one run and the daemon of another: muster says which, and
// nothing is left.
func checkMPSEnds(ctx context.Context, s *session) error {
	for _, c := range []struct {
		what, says string
		pid        func(h *sharing) (int, error)
	}{
		{"a worker", "SIGKILL", func(h *sharing) (int, error) { return h.workers[1].PID, nil }},
		{"the daemon", "the MPS daemon of", func(h *sharing) (int, error) {
			text, err := os.ReadFile(filepath.Join(h.pipe, "nvidia-cuda-mps-control.pid"))
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}},
	} {
		if err := s.killed(ctx, c.what, c.says, c.pid); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) killed(ctx context.Context, what, says string, pick func(h *sharing) (int, error)) error {
	h, err := s.startSharing(ctx, "mps-"+strings.ReplaceAll(what, " ", "-"))
	if err != nil {
		return err
	}
	pid, err := pick(h)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		return errors.Join(err, h.end(ctx))
	}
	// Workers that are let end before the loss is seen have ended well.
	for deadline := time.Now().Add(mpsWait); !strings.Contains(h.said().all(), says) && time.Now().Before(deadline) && ctx.Err() == nil; {
		time.Sleep(50 * time.Millisecond)
	}
	if err := h.end(ctx); err == nil {
		return fmt.Errorf("a run of which %s was killed ended well", what)
	}
	said := h.said().all()
	if !strings.Contains(said, says) {
		return fmt.Errorf("%s was killed, and muster does not say %q: %s", what, says, h.said().last())
	}
	return h.nothingLeft(ctx)
}

// nothingLeft waits until no process of MPS has the run's folder, nor is that there.
func (h *sharing) nothingLeft(ctx context.Context) error {
	var left []string
	for deadline := time.Now().Add(mpsWait); ctx.Err() == nil; {
		left = nil
		entries, _ := filepath.Glob("/proc/[0-9]*")
		for _, entry := range entries {
			pid, _ := strconv.Atoi(filepath.Base(entry))
			name, _ := os.ReadFile(filepath.Join(entry, "comm"))
			if value, err := variableOf(pid, "CUDA_MPS_PIPE_DIRECTORY"); err == nil && value == h.pipe {
				left = append(left, fmt.Sprintf("%s (pid %d)", strings.TrimSpace(string(name)), pid))
			}
		}
		if _, err := os.Stat(h.pipe); err == nil {
			left = append(left, h.pipe)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("left of MPS: %s", strings.Join(left, ", "))
}
