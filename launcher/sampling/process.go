//go:build linux

package sampling

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/muster-dev/muster/launcher/proc"
)

const (
	// ticks is the kernel's USER_HZ, which is 100 on all of Linux's platforms for programs.
	ticks = 100
	// faultBytes is about what the kernel reads at a major page fault: a window of read-ahead (the default of
	// /sys/block/*/queue/read_ahead_kb).
	faultBytes = 128 << 10
	// childTurns is how many samples of a rank pass between two readings of all its processes, as long as it has other
	// signs of life: data loaders are many, and what they hold changes slowly.
	childTurns = 4
)

type usage struct {
	cpu      float64 // seconds
	faulted  uint64  // bytes that page faults have read from a disk
	moved    uint64  // bytes read and written otherwise; 0 where that was not read
	resident float64 // bytes
}

// process is one of a rank's, with what it had used when it was last read.
type process struct {
	pid      int
	child    bool // of the one that muster has started
	lives    bool
	used     usage
	read     time.Time // zero: not yet
	movedAt  time.Time // when what it moves was last read
	movedWas uint64    // what it had moved then
}

type work struct {
	cpu   float64 // cores
	bytes float64 // a second, read and written, as far as that was read
}

// readAll reads a rank's processes: all of them and what they move where the rank is still, with no other sign of life.
func readAll(all []*process, now time.Time, turn int, still bool) (did work) {
	for _, p := range all {
		if still || turn%childTurns == 0 || !p.child || p.read.IsZero() {
			one := p.readUsage(now, still)
			did.cpu += one.cpu
			did.bytes += one.bytes
		}
	}
	return did
}

// residentIn is the memory of those processes that live; lives is whether there are any.
func residentIn(all []*process) (bytes float64, lives bool) {
	for _, p := range all {
		if p.lives {
			bytes += p.used.resident
			lives = true
		}
	}
	return bytes, lives
}

// readUsage reads what a process has used, and returns what it has done since the last reading; at the first that is
// all that it has used, as if in the last second. What it moves is read where files says so, for it is half of the
// effort, and counts from the second time on.
func (p *process) readUsage(now time.Time, files bool) (did work) {
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
		if since := now.Sub(p.movedAt); since < maxUnseen {
			did.bytes += float64(u.moved-min(p.movedWas, u.moved)) / since.Seconds()
		}
		p.movedWas, p.movedAt = u.moved, now
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

// usageIn reads the texts of /proc/PID/stat and /proc/PID/io: page faults that read from a disk are of files that are
// mapped, as safetensors are; rchar and wchar count read(2) and write(2) of files and pipes, and not what sockets send
// and receive; read_bytes and write_bytes count what reaches a disk, by io_uring and aio too.
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

func number64(text []byte) uint64 {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
