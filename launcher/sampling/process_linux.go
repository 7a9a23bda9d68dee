package sampling

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/muster-dev/muster/launcher/proc"
)

// usage is what a process has used since it began, and what it has now.
type usage struct {
	cpu      float64 // seconds
	faulted  uint64  // bytes that page faults have read from a disk
	moved    uint64  // bytes read and written otherwise; 0 where that was not asked for
	resident float64 // bytes
}

const (
	// ticks is the kernel's USER_HZ, which is 100 on all of Linux's platforms for programs.
	ticks = 100
	// faultBytes is about what the kernel reads at a major page fault: a window of read-ahead
	// (the default of /sys/block/*/queue/read_ahead_kb).
	faultBytes = 128 << 10
)

// process is one of a rank's, with what it had used when it was last read.
type process struct {
	pid      int
	child    bool // of the one that muster has started
	lives    bool
	used     usage
	read     time.Time // zero: not yet
	movedAt  time.Time // when it was asked what it moves
	movedWas uint64    // what it had moved then
}

// work is what processes do while they are looked at.
type work struct {
	cpu   float64 // cores
	bytes float64 // a second, read and written, in so far as that was asked for
}

// look reads what a process has used, and returns what it has done since it was last read;
// of one that was not read before that is all that it has used, as if in the last second.
// What it moves is asked where files says so, for it is half of the effort, and counts from
// the second time on.
func (p *process) look(now time.Time, files bool) (did work) {
	var room [2048]byte
	p.lives = false
	stat, err := proc.Read(room[:0], p.pid, "stat")
	if err != nil {
		return work{}
	}
	io := stat
	if files {
		io, _ = proc.Read(stat, p.pid, "io") // others' may not be read
	}
	return p.take(now, usageIn(stat, io[len(stat):]), files)
}

// take keeps what was read.
func (p *process) take(now time.Time, u usage, files bool) (did work) {
	if p.lives = u.resident > 0 || !p.child; !p.lives { // it has ended, and nobody has asked for its status
		return work{}
	}
	passed := Pace
	if !p.read.IsZero() {
		passed = max(now.Sub(p.read), Pace/2)
	}
	did.cpu = max(0, u.cpu-p.used.cpu) / passed.Seconds()
	did.bytes = float64(u.faulted-min(p.used.faulted, u.faulted)) / passed.Seconds()
	p.used, p.read = u, now
	if files {
		if since := now.Sub(p.movedAt); since < mostUnseen {
			did.bytes += float64(u.moved-min(p.movedWas, u.moved)) / since.Seconds()
		}
		p.movedWas, p.movedAt = u.moved, now
	}
	return did
}

// childTurns is how many samples of a rank pass from one reading of all its processes to
// the next, as long as it has other signs of life: data loaders are many, and what they hold
// changes slowly.
const childTurns = 4

// lookAll reads a rank's processes, where the rank has no other sign of life all of them and
// what they move.
func lookAll(all []*process, now time.Time, turn int, still bool) (did work) {
	for _, p := range all {
		if still || turn%childTurns == 0 || !p.child || p.read.IsZero() {
			one := p.look(now, still)
			did.cpu += one.cpu
			did.bytes += one.bytes
		}
	}
	return did
}

// Fields of proc_pid_stat(5), counted from the one behind the name.
const (
	majorFaults = 9
	userTime    = 11
	systemTime  = 12
	residentSet = 21 // pages
)

// usageIn is what the texts of /proc/PID/stat and /proc/PID/io tell: page faults that read
// from a disk are of files that are mapped, as safetensors are; rchar and wchar count read(2)
// and write(2) of files and pipes, and not what sockets send and receive; read_bytes and
// write_bytes count what reaches a disk, by io_uring and aio too.
func usageIn(stat, io []byte) (u usage) {
	// The name, in parentheses, may hold anything.
	field := 0
	for word := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		switch n := number64(word); field {
		case majorFaults:
			u.faulted = n * faultBytes
		case userTime, systemTime:
			u.cpu += float64(n) / ticks
		case residentSet:
			u.resident = float64(n) * pageSize
		}
		field++
	}
	for line := range bytes.Lines(io) {
		switch name, n, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": ")); string(name) {
		case "rchar", "wchar", "read_bytes", "write_bytes":
			u.moved += number64(n)
		}
	}
	return u
}

var pageSize = float64(os.Getpagesize())

// number64 is 0 where there is no number.
func number64(text []byte) uint64 {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
