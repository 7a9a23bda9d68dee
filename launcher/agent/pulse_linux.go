package agent

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
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

	alone                bool // it talks to no other rank
	written              int64
	output, device       time.Time
	cpu, files           time.Time
	used                 map[int]usage // of its processes, by pid
	looked               time.Time
	sampled              time.Time     // when the newest sample of its device was taken
	rests                int           // of how many samples in a row its device did nothing
	busy                 time.Duration // for how long its device has worked in all
	known, worked, spins bool          // of its device
	toldAge              float64
	excused              atomic.Int64 // nanoseconds after began until which muster has it write
}

// usage is what a process has used since it began.
type usage struct {
	cpu   float64 // seconds
	bytes uint64  // read and written
}

const (
	// mostUnseen is how long may lie between two looks. Of what passes beyond that nobody
	// knows: this process was stopped.
	mostUnseen = 5 * time.Second
	// restsNeeded is of how many samples in a row a device does nothing before it is at rest:
	// where one is taken each half minute, one tells little of the time between.
	restsNeeded = 5
	// workedAfter is for how long a device has to work before its rank counts as past its
	// start: moving a model there is part of that, and compiling may follow.
	workedAfter = 30 * time.Second
)

// signsOf begins to look at a worker; alone is whether it talks to no other rank.
func signsOf(w *worker, alone bool) *signs {
	now := time.Now()
	s := &signs{began: now, alone: alone, output: now, device: now, cpu: now, files: now, looked: now, used: map[int]usage{}}
	if w != nil {
		s.log, s.observer = w.log, w.observer
	}
	return s
}

// excuse has what a rank does for so long not count as signs of life: muster makes it write
// where it is.
func (s *signs) excuse(length time.Duration) {
	if s != nil {
		s.excused.Store(int64(time.Since(s.began) + length))
	}
}

// look looks for signs of life since the last look. pids are the rank's processes, and
// sampled is when the values of its device were taken.
func (s *signs) look(now time.Time, pids []int, v samples.Values, sampled time.Time) {
	if unseen := now.Sub(s.looked) - mostUnseen; unseen > 0 {
		for _, at := range []*time.Time{&s.output, &s.device, &s.cpu, &s.files} {
			*at = at.Add(unseen)
		}
	}
	excused := int64(now.Sub(s.began)) < s.excused.Load()
	if s.log != nil {
		if written := s.log.Taken(); written != s.written { // kept or not
			s.written = written
			if !excused {
				s.output = now
			}
		}
	}
	s.lookAtProcesses(now, pids, excused)
	s.lookAtDevice(now, v, sampled)
	if told := s.observer.latest(); told != nil {
		s.toldAge = max(told.ProgressAt, told.FurthestAt, told.PhaseAt, told.CheckpointAt)
		s.worked = s.worked || told.FurthestAt > 0 // that it names a phase may mean that it compiles
	}
	s.looked = now
}

func (s *signs) lookAtProcesses(now time.Time, pids []int, excused bool) {
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
	if excused {
		return
	}
	if cpu > hang.BusyCPU*passed {
		s.cpu = now
	}
	if float64(bytes) > hang.BusyFiles*passed {
		s.files = now
	}
}

// lookAtDevice looks at a device. As long as nothing is known of it, it is not at rest. What
// only waits in a collective does so for another rank: who talks to none computes.
func (s *signs) lookAtDevice(now time.Time, v samples.Values, sampled time.Time) {
	busy, known := v.Get(samples.GPU)
	traffic, both := v.Get(samples.Traffic)
	if s.known = known && both; !s.known {
		s.device, s.rests, s.spins = now, 0, false
		return
	}
	s.spins = !s.alone && busy >= hang.BusyGPU && traffic <= hang.IdleTraffic
	switch {
	case busy > 0 && !s.spins:
		s.device, s.rests = now, 0
		s.busy += min(now.Sub(s.looked), mostUnseen)
		s.worked = s.worked || s.busy >= workedAfter
	case sampled != s.sampled:
		s.rests++
	}
	s.sampled = sampled
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
	p := hang.Pulse{Rank: rank, Attempt: attempt, Age: ago(s.began), Output: ago(s.output), CPU: ago(s.cpu), Files: ago(s.files), Worked: s.worked, Spins: s.spins}
	p.Told = max(0, p.Age-s.toldAge)
	if s.known {
		device := ago(s.device)
		if s.rests < restsNeeded {
			device = 0
		}
		p.Device = &device
	}
	return p
}

// ticks is the kernel's USER_HZ, which is 100 on all of Linux's platforms for programs.
const ticks = 100

// faultBytes is about what the kernel reads at a major page fault: a window of read-ahead
// (the default of /sys/block/*/queue/read_ahead_kb).
const faultBytes = 128 << 10

// usageOf reads what a process has used. What cannot be read is none.
func usageOf(pid int) usage {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, _ := os.ReadFile(dir + "/stat")
	io, _ := os.ReadFile(dir + "/io")
	return usageIn(string(stat), string(io))
}

// usageIn is what the texts of /proc/PID/stat (proc_pid_stat(5): utime, stime, and majflt for
// files that are mapped, as safetensors are) and /proc/PID/io tell: rchar and wchar count
// read(2) and write(2) of files and pipes, and not what sockets send and receive; read_bytes
// and write_bytes count what reaches a disk, by io_uring and aio too.
func usageIn(stat, io string) (u usage) {
	// The name, in parentheses, may hold anything; majflt is the 10th field behind it, utime
	// the 12th.
	if fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(fields) > 12 {
		faults, _ := strconv.ParseUint(fields[9], 10, 64)
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		u.cpu, u.bytes = (user+system)/ticks, faults*faultBytes
	}
	for line := range strings.Lines(io) {
		switch name, number, _ := strings.Cut(strings.TrimSpace(line), ": "); name {
		case "rchar", "wchar", "read_bytes", "write_bytes":
			n, _ := strconv.ParseUint(number, 10, 64)
			u.bytes += n
		}
	}
	return u
}
