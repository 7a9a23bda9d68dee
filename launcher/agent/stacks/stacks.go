//go:build linux

// Package stacks finds out where the programs of ranks are: by py-spy, by Python's faulthandler, by the kernel, and by
// torch's flight recorder.
package stacks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/launcher/agent/loop"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/rundir"
	"github.com/muster-dev/muster/launcher/sampling"
)

const (
	// spyLimit is how long py-spy may take for one rank, and limit all of it for all.
	spyLimit = 8 * time.Second
	limit    = 15 * time.Second
	// signalWait is how long a handler may take to write.
	signalWait = 1500 * time.Millisecond
	// maxStack and maxTail bound what is kept of a stack, and of what the rank has written.
	maxStack = 16 << 10
	maxTail  = 4 << 10
)

// Subject is a rank whose stack is wanted.
type Subject struct {
	Rank  int
	Log   *ranklog.Writer
	Signs *sampling.Signs // must not take what it writes here for a sign of life
	pid   int             // of its Python, or its leader
	id    proc.ID
}

// Find finds the process to look at: the rank's leader, or where that is a shell or a wrapper the first Python among
// its other processes.
func (s *Subject) Find(leader int, others []proc.Stat) {
	s.pid = leader
	if !isPython(leader) {
		first := 0
		for _, o := range others {
			if isPython(o.PID) && (first == 0 || o.PID < first) {
				first = o.PID
			}
		}
		if first != 0 {
			s.pid = first
		}
	}
	if stat, err := proc.StatOf(s.pid); err == nil {
		s.id = stat.ID
	}
}

func isPython(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && strings.HasPrefix(filepath.Base(exe), "python")
}

// Taker takes stacks.
type Taker struct {
	Reaper *proc.Reaper
	Env    []string // of the workers
	// LookPath finds a program in Env.
	LookPath func(program string) (string, error)
	deep     bool
	signal   string
	spy      string // path of py-spy; "": it is not on this host
}

// Take finds out where ranks are, within bounds.
func (t Taker) Take(c *message.Stacks, subjects []Subject) *message.StacksTaken {
	t.deep, t.signal, t.spy = c.Deep, c.Signal, t.findSpy(subjects)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	taken := &message.StacksTaken{Number: c.Number, Ranks: map[int]message.RankStack{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, s := range subjects {
		all.Go(func() {
			found := t.stackOf(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			taken.Ranks[s.Rank] = found
		})
	}
	all.Wait()
	return taken
}

// findSpy finds py-spy where the workers' environment has programs, or beside their Python.
func (t Taker) findSpy(subjects []Subject) string {
	if path, err := t.LookPath("py-spy"); err == nil {
		return path
	}
	for _, s := range subjects {
		words, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/cmdline")
		program, _, _ := strings.Cut(string(words), "\x00")
		if err != nil || !filepath.IsAbs(program) {
			continue
		}
		if path, err := t.LookPath(filepath.Join(filepath.Dir(program), "py-spy")); err == nil {
			return path
		}
	}
	return ""
}

func (t Taker) stackOf(ctx context.Context, s Subject) message.RankStack {
	found := message.RankStack{PID: s.pid, State: kernelState(s.pid)}
	tails, _ := loop.Within(loop.DiskWait, func() (both [2][]byte) {
		both[0], _ = ranklog.Tail(s.Log.Path(), ranklog.Stdout, maxTail)
		both[1], _ = ranklog.Tail(s.Log.Path(), ranklog.Stderr, maxTail)
		return both
	})
	found.Stdout, found.Stderr = tails[0], tails[1]
	if !t.deep {
		return found
	}
	s.Signs.Excuse(limit)
	defer s.Signs.Excuse(2 * sampling.Pace) // until a sample has passed over what was written last
	recorder := askRecorder(s.pid)
	var why []string
	for _, way := range []func() (how, text string, err error){
		func() (string, string, error) { return t.bySpy(ctx, s) },
		func() (string, string, error) { return bySignal(s, t.signal) },
		func() (string, string, error) { return byKernel(s.pid) },
	} {
		how, text, err := way()
		if err == nil {
			found.How, found.Text = how, text[:min(len(text), maxStack)]
			break
		}
		why = append(why, err.Error())
	}
	if found.How == "" || found.How == "kernel" {
		found.Why = strings.Join(why, "; ")
	}
	found.File, _ = loop.Within(loop.DiskWait, func() string { return keep(s, found) })
	found.Recorder = recorder.await()
	return found
}

// bySpy asks py-spy, which reads the process's memory and needs the right to trace it. It is not asked for the values
// of variables: they may be secrets.
func (t Taker) bySpy(ctx context.Context, s Subject) (how, text string, err error) {
	switch {
	case !isPython(s.pid):
		return "", "", fmt.Errorf("it is no Python")
	case t.spy == "":
		return "", "", fmt.Errorf("py-spy is not on this host (pip install py-spy where the workers find it)")
	}
	ctx, cancel := context.WithTimeout(ctx, spyLimit)
	defer cancel()
	text, exit, err := t.Reaper.Run(ctx, []string{t.spy, "dump", "--pid", strconv.Itoa(s.pid)}, t.Env, "")
	if err == nil && exit.Status() != 0 {
		err = fmt.Errorf("py-spy: %s", strings.Join(strings.Fields(text), " "))
	}
	return "py-spy", text, err
}

// bySignal has Python's faulthandler write the stacks, where the program has registered it: a signal that nobody
// catches would end it.
func bySignal(s Subject, name string) (how, text string, err error) {
	signal := unix.SignalNum(name)
	if signal == 0 {
		return "", "", fmt.Errorf("the job file has no signal sent (hang { signal = \"none\" })")
	}
	if !proc.Catches(s.pid, int(signal)) {
		return "", "", fmt.Errorf(
			"the program catches no %[1]s (faulthandler.register(signal.%[1]s, all_threads=True))", name)
	}
	from := s.Log.Size()
	if err := proc.Signal(s.id, signal); err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	for end := time.Now().Add(signalWait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text = writtenSince(s.Log.Path(), from)
		if strings.Contains(text, "most recent call first") && strings.HasSuffix(text, "\n") {
			time.Sleep(50 * time.Millisecond) // of several threads the last may be under way
			return "faulthandler", writtenSince(s.Log.Path(), from), nil
		}
	}
	return "", "", fmt.Errorf("the program catches %s and wrote no stack within %v", name, signalWait)
}

func writtenSince(path string, from int64) string {
	reader, err := ranklog.Open(path, from)
	if err != nil {
		return ""
	}
	defer reader.Close()
	var text strings.Builder
	for text.Len() < 2*maxStack {
		segment, err := reader.Next(maxStack, true)
		if err != nil {
			break
		}
		text.Write(segment.Data)
	}
	return text.String()
}

// byKernel is where the process is in the kernel: /proc/PID/stack, which only root may read.
func byKernel(pid int) (how, text string, err error) {
	stack, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stack")
	if err != nil {
		return "", "", fmt.Errorf("the kernel's stack: %w", err)
	}
	return "kernel", string(stack), nil
}

// kernelState is the state of a process and what it waits for in the kernel: /proc/PID/status and wchan.
func kernelState(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return "gone"
	}
	state := ""
	for line := range strings.Lines(string(status)) {
		if value, is := strings.CutPrefix(line, "State:"); is {
			state = strings.TrimSpace(value)
		}
	}
	if wait, err := os.ReadFile(dir + "/wchan"); err == nil && len(wait) > 0 && string(wait) != "0" {
		state += " in " + string(wait)
	}
	return state
}

func keep(s Subject, found message.RankStack) string {
	path := filepath.Join(filepath.Dir(s.Log.Path()), fmt.Sprintf("rank-%d.stacks", s.Rank))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return ""
	}
	_, err = fmt.Fprintf(f, "%s pid %d, %s, by %s\n%s\n",
		time.Now().Format(time.RFC3339), found.PID, found.State, found.How, found.Text)
	if f.Close() != nil || err != nil {
		return ""
	}
	return path
}

// Variables of torch's flight recorder (torch/csrc/distributed/c10d, ProcessGroupNCCL): torch appends the rank to both,
// and ".pipe" to the pipe.
const (
	recorderPipe = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
	recorderFile = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
)

const recorderWait = 3 * time.Second

// RecorderEnv has torch's flight recorder listen in the folder of sockets, and write beside the rank's output.
func RecorderEnv(place rundir.Place, s *message.Start) map[string]string {
	if !s.Recorder {
		return nil
	}
	return map[string]string{
		recorderPipe: filepath.Join(place.Sockets, fmt.Sprintf("fr-%d-", s.Attempt)),
		recorderFile: filepath.Join(place.State, fmt.Sprintf("attempt-%d", s.Attempt), "nccl-trace-rank-"),
	}
}

type recording struct {
	path   string
	before time.Time
}

func askRecorder(pid int) recording {
	pipe, _ := proc.EnvironOf(pid, recorderPipe)
	file, _ := proc.EnvironOf(pid, recorderFile)
	rank, _ := proc.EnvironOf(pid, "RANK")
	if pipe == "" || file == "" || rank == "" {
		return recording{}
	}
	fd, err := unix.Open(pipe+rank+".pipe", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil { // ENXIO: nobody listens
		return recording{}
	}
	defer unix.Close(fd)
	r := recording{path: file + rank, before: time.Now()}
	if _, err := unix.Write(fd, []byte("1\n")); err != nil {
		return recording{}
	}
	return r
}

// await waits until the file is there; "": it does not come.
func (r recording) await() string {
	if r.path == "" {
		return ""
	}
	for end := r.before.Add(recorderWait); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		info, err := os.Stat(r.path)
		if err == nil && info.Size() > 0 && !info.ModTime().Before(r.before.Add(-time.Second)) {
			return r.path
		}
	}
	return ""
}
