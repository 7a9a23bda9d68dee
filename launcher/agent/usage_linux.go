package agent

import (
	"bytes"
	"os"
	"strconv"

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

// usagesOf reads what the processes of each rank have used. Those that are gone are missing,
// and so are ranks of which no process is left. What they move is asked of the ranks that
// files has, for it is half of the effort.
func usagesOf(pids map[int]owner, files map[int]bool) map[int]map[int]usage {
	all := map[int]map[int]usage{}
	var room [2048]byte
	for pid, who := range pids {
		stat, err := proc.Read(room[:0], pid, "stat")
		if err != nil {
			continue
		}
		io := stat
		if files[who.rank] {
			io, _ = proc.Read(stat, pid, "io") // others' may not be read
		}
		u := usageIn(stat, io[len(stat):])
		if u.resident == 0 && who.child { // it has ended, and nobody has asked for its status
			continue
		}
		if all[who.rank] == nil {
			all[who.rank] = map[int]usage{}
		}
		all[who.rank][pid] = u
	}
	return all
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
