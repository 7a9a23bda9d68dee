package agent

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/hang"
	"github.com/muster-dev/muster/launcher/orders"
	"github.com/muster-dev/muster/launcher/ranklog"
	"github.com/muster-dev/muster/launcher/samples"
)

// signs are a rank's signs of life: when each was last seen. Times are those of the clock
// that stands still while the machine is suspended.
type signs struct {
	log      *ranklog.Writer
	observer *observer
	began    time.Time

	written              int64
	output, device       time.Time
	cpu, files           time.Time
	used                 map[int]usage // of its processes, by pid
	looked               time.Time
	known, worked, spins bool // of its device
	toldAge              float64
}

// usage is what a process has used since it began.
type usage struct {
	cpu   float64 // seconds
	bytes uint64  // read and written
}

// signsOf begins to look at a worker.
func signsOf(w *worker) *signs {
	now := time.Now()
	s := &signs{began: now, output: now, device: now, cpu: now, files: now, looked: now, used: map[int]usage{}}
	if w != nil {
		s.log, s.observer = w.log, w.observer
	}
	return s
}

// look looks for signs of life since the last look. pids are the rank's processes.
func (s *signs) look(now time.Time, pids []int, v samples.Values) {
	if s.log != nil {
		if size := s.log.Size(); size != s.written {
			s.written, s.output = size, now
		}
	}
	s.lookAtProcesses(now, pids)
	s.lookAtDevice(now, v)
	if told := s.observer.latest(); told != nil {
		s.toldAge = max(told.ProgressAt, told.FurthestAt, told.PhaseAt, told.CheckpointAt)
	}
	s.looked = now
}

func (s *signs) lookAtProcesses(now time.Time, pids []int) {
	passed := now.Sub(s.looked).Seconds()
	var cpu float64
	var bytes uint64
	used := map[int]usage{}
	for _, pid := range pids {
		u := usageOf(pid)
		before := s.used[pid]
		cpu += max(0, u.cpu-before.cpu)
		bytes += u.bytes - min(before.bytes, u.bytes)
		used[pid] = u
	}
	s.used = used
	if cpu > hang.BusyCPU*passed {
		s.cpu = now
	}
	if float64(bytes) > hang.BusyFiles*passed {
		s.files = now
	}
}

func (s *signs) lookAtDevice(now time.Time, v samples.Values) {
	busy, known := v.Get(samples.GPU)
	traffic, both := v.Get(samples.Traffic)
	if !known || !both {
		s.spins = false
		return
	}
	s.known = true
	s.spins = busy >= hang.BusyGPU && traffic <= hang.IdleTraffic
	if busy > 0 && !s.spins {
		s.device, s.worked = now, true
	}
}

// pulses are those of all ranks that run.
func (s *sampling) pulses(now time.Time) *orders.Pulses {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &orders.Pulses{}
	for rank, r := range s.ranks {
		if !math.IsNaN(r.now[samples.RSS]) { // else it has ended
			all.Ranks = append(all.Ranks, r.signs.pulse(now, rank, r.attempt))
		}
	}
	return all
}

// pulse is what the coordinator is told of a rank.
func (s *signs) pulse(now time.Time, rank, attempt int) hang.Pulse {
	ago := func(t time.Time) float64 { return now.Sub(t).Seconds() }
	p := hang.Pulse{Rank: rank, Attempt: attempt, Age: ago(s.began), Output: ago(s.output), CPU: ago(s.cpu), Files: ago(s.files), Worked: s.worked || s.toldAge > 0, Spins: s.spins}
	p.Told = max(0, p.Age-s.toldAge)
	if s.known {
		device := ago(s.device)
		p.Device = &device
	}
	return p
}

// ticks is the kernel's USER_HZ, which is 100 on all of Linux's platforms for programs.
const ticks = 100

// usageOf reads /proc/PID/stat (proc_pid_stat(5), utime and stime) and /proc/PID/io (rchar
// and wchar, which count files and pipes, and not what sockets send and receive).
func usageOf(pid int) (u usage) {
	dir := "/proc/" + strconv.Itoa(pid)
	if text, err := os.ReadFile(dir + "/stat"); err == nil {
		// The name, in parentheses, may hold anything; utime is the 12th field behind it.
		if _, rest, is := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " "); is {
			if fields := strings.Fields(rest); len(fields) > 12 {
				user, _ := strconv.ParseFloat(fields[11], 64)
				system, _ := strconv.ParseFloat(fields[12], 64)
				u.cpu = (user + system) / ticks
			}
		}
	}
	text, err := os.ReadFile(dir + "/io")
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" {
			n, _ := strconv.ParseUint(number, 10, 64)
			u.bytes += n
		}
	}
	return u
}
