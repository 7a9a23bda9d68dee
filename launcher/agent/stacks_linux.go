package agent

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

	"github.com/muster-dev/muster/launcher/agent/environ"
	"github.com/muster-dev/muster/launcher/message"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/sampling"
)

const (
	// spyLimit is how long py-spy may take for one rank, and stacksLimit all of it for all.
	spyLimit    = 8 * time.Second
	stacksLimit = 15 * time.Second
	// signalWait is how long a handler may take to write, and recorderWait torch's recorder.
	signalWait   = 1500 * time.Millisecond
	recorderWait = 3 * time.Second
	stackKept    = 16 << 10
)

// Variables of torch's flight recorder (torch/csrc/distributed/c10d, ProcessGroupNCCL): to
// both the rank is appended, to the pipe ".pipe" as well.
const (
	recorderPipe = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
	recorderFile = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
)

// recorderEnv has torch's flight recorder listen in the folder of sockets, and write beside
// the rank's output.
func (a *agent) recorderEnv(o *message.Start) map[string]string {
	if !o.Recorder {
		return nil
	}
	return map[string]string{
		recorderPipe: filepath.Join(a.place.Sockets, fmt.Sprintf("fr-%d-", o.Attempt)),
		recorderFile: filepath.Join(a.place.State, fmt.Sprintf("attempt-%d", o.Attempt), "nccl-trace-rank-"),
	}
}

// subject is a rank whose stack is wanted.
type subject struct {
	rank int
	log  *ranklog.Writer
	pid  int // of its Python, or its leader
	id   proc.ID
	// signs are not to take what it writes for the question for a sign of life.
	signs *sampling.Signs
}

// takeStacks finds out where ranks are, beside the loop and within bounds.
func (a *agent) takeStacks(o *message.Stacks) {
	var subjects []subject
	others := a.ranksOf(proc.All())
	for _, rank := range o.Ranks {
		if w := a.workers[rank]; w != nil {
			s := subject{rank: rank, log: w.log, pid: pythonOf(w.child.ID.PID, others[rank]), signs: a.sampler.SignsOf(rank)}
			if stat, err := proc.StatOf(s.pid); err == nil {
				s.id = stat.ID
			}
			subjects = append(subjects, s)
		}
	}
	spy := a.findSpy(subjects)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), stacksLimit)
		defer cancel()
		taken := &message.StacksTaken{Number: o.Number, Ranks: map[int]message.RankStack{}}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, s := range subjects {
			all.Go(func() {
				found := a.stackOf(ctx, s, spy, o)
				mu.Lock()
				defer mu.Unlock()
				taken.Ranks[s.rank] = found
			})
		}
		all.Wait()
		a.loop.Post(func() { a.loop.Report(message.Update{Stacks: taken}) })
	}()
}

// pythonOf is the rank's own Python: its leader, or where that is a shell or a wrapper the
// first Python below it.
func pythonOf(leader int, others []proc.Stat) int {
	if isPython(leader) {
		return leader
	}
	first := 0
	for _, s := range others {
		if isPython(s.PID) && (first == 0 || s.PID < first) {
			first = s.PID
		}
	}
	if first != 0 {
		return first
	}
	return leader
}

func isPython(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && strings.HasPrefix(filepath.Base(exe), "python")
}

// findSpy is where py-spy is on this host; "": nowhere. It is looked for where the workers'
// environment has programs, and beside their Python.
func (a *agent) findSpy(subjects []subject) string {
	if path, err := lookPath("py-spy", environ.Layered(a.base), a.workdir); err == nil {
		return path
	}
	for _, s := range subjects {
		words, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/cmdline")
		program, _, _ := strings.Cut(string(words), "\x00")
		if err != nil || !filepath.IsAbs(program) {
			continue
		}
		if path := filepath.Join(filepath.Dir(program), "py-spy"); executable(path) == nil {
			return path
		}
	}
	return ""
}

func (a *agent) stackOf(ctx context.Context, s subject, spy string, o *message.Stacks) message.RankStack {
	found := message.RankStack{PID: s.pid, State: kernelState(s.pid)}
	written, _ := within(diskWait, func() (all writings) {
		all.stdout, _ = ranklog.Tail(s.log.Path(), ranklog.Stdout, tailSize)
		all.stderr, _ = ranklog.Tail(s.log.Path(), ranklog.Stderr, tailSize)
		return all
	})
	found.Stdout, found.Stderr = written.stdout, written.stderr
	if !o.Deep {
		return found
	}
	s.signs.Excuse(stacksLimit)
	defer s.signs.Excuse(2 * sampling.Pace) // until a look has passed over what was written last
	recorder := askRecorder(s)
	var why []string
	for _, way := range []func() (how, text string, err error){
		func() (string, string, error) { return a.bySpy(ctx, s, spy) },
		func() (string, string, error) { return bySignal(s, o.Signal) },
		func() (string, string, error) { return byKernel(s.pid) },
	} {
		how, text, err := way()
		if err == nil {
			found.How, found.Text = how, text[:min(len(text), stackKept)]
			break
		}
		why = append(why, err.Error())
	}
	if found.How == "" || found.How == "kernel" {
		found.Why = strings.Join(why, "; ")
	}
	found.File, _ = within(diskWait, func() string { return keepStack(s, found) })
	found.Recorder = recorder.await()
	return found
}

// bySpy asks py-spy, which reads the process's memory and needs the right to trace it. Values
// of variables are not asked for: they may be secrets.
func (a *agent) bySpy(ctx context.Context, s subject, spy string) (how, text string, err error) {
	switch {
	case !isPython(s.pid):
		return "", "", fmt.Errorf("it is no Python")
	case spy == "":
		return "", "", fmt.Errorf("py-spy is not on this host (pip install py-spy where the workers find it)")
	}
	ctx, cancel := context.WithTimeout(ctx, spyLimit)
	defer cancel()
	text, exit, err := a.reaper.Run(ctx, []string{spy, "dump", "--pid", strconv.Itoa(s.pid)}, environ.Layered(a.base), "")
	if err == nil && exit.Status() != 0 {
		err = fmt.Errorf("py-spy: %s", strings.Join(strings.Fields(text), " "))
	}
	return "py-spy", text, err
}

// bySignal has Python's faulthandler write the stacks, where the program has registered it:
// a signal that nobody catches would end it.
func bySignal(s subject, name string) (how, text string, err error) {
	signal := unix.SignalNum(name)
	if signal == 0 {
		return "", "", fmt.Errorf("the job file has no signal sent (hang { signal = \"none\" })")
	}
	if !proc.Catches(s.pid, int(signal)) {
		return "", "", fmt.Errorf("the program catches no %[1]s (faulthandler.register(signal.%[1]s, all_threads=True))", name)
	}
	from := s.log.Size()
	if err := proc.Signal(s.id, signal); err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	for end := time.Now().Add(signalWait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text = writtenSince(s.log.Path(), from); strings.Contains(text, "most recent call first") && strings.HasSuffix(text, "\n") {
			time.Sleep(50 * time.Millisecond) // of several threads the last may be under way
			return "faulthandler", writtenSince(s.log.Path(), from), nil
		}
	}
	return "", "", fmt.Errorf("the program catches %s and wrote no stack within %v", name, signalWait)
}

// writtenSince is what a rank has written from a place of its log on.
func writtenSince(path string, from int64) string {
	reader, err := ranklog.Open(path, from)
	if err != nil {
		return ""
	}
	defer reader.Close()
	var text strings.Builder
	for text.Len() < 2*stackKept {
		segment, err := reader.Next(pushSize, true)
		if err != nil {
			break
		}
		text.Write(segment.Data)
	}
	return text.String()
}

// byKernel is where the process is in the kernel: /proc/PID/stack, which root alone may read.
func byKernel(pid int) (how, text string, err error) {
	stack, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stack")
	if err != nil {
		return "", "", fmt.Errorf("the kernel's stack: %w", err)
	}
	return "kernel", string(stack), nil
}

// kernelState is the state of a process and what it waits for in the kernel: /proc/PID/status
// and wchan.
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

// keepStack writes a stack beside the rank's output; "" where it cannot.
func keepStack(s subject, found message.RankStack) string {
	path := filepath.Join(filepath.Dir(s.log.Path()), fmt.Sprintf("rank-%d.stacks", s.rank))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return ""
	}
	_, err = fmt.Fprintf(f, "%s pid %d, %s, by %s\n%s\n", time.Now().Format(time.RFC3339), found.PID, found.State, found.How, found.Text)
	if f.Close() != nil || err != nil {
		return ""
	}
	return path
}

// recording is a file that torch's flight recorder was asked to write.
type recording struct {
	path   string
	before time.Time
}

// askRecorder asks torch's flight recorder, where it listens.
func askRecorder(s subject) recording {
	pipe, _ := proc.EnvironOf(s.pid, recorderPipe)
	file, _ := proc.EnvironOf(s.pid, recorderFile)
	rank, _ := proc.EnvironOf(s.pid, "RANK")
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
		if info, err := os.Stat(r.path); err == nil && info.Size() > 0 && !info.ModTime().Before(r.before.Add(-time.Second)) {
			return r.path
		}
	}
	return ""
}
