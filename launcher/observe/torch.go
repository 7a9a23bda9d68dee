package observe

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is kept of a rank's processes.
const (
	maxDevices   = 64  // of a process
	maxInAll     = 128 // devices of all processes
	maxSnapshots = 8
	maxTrouble   = 400
)

// torchWord is a line of the hook, without its first word.
type torchWord struct {
	kind    string // "python", "imported", "device", "oom", "snapshot", "trouble"
	text    string
	device  int
	numbers map[string]uint64
}

// parseTorch reads what the hook says:
//
//	python 3.11.7
//	imported 2.5.1 12.4         (or: imported 2.5.1 none)
//	unsupported WHY
//	device 0 allocated=1 reserved=2 ...
//	oom 0 requested=1 total=2 free=3
//	snapshot /path
//	trouble TEXT
func parseTorch(rest string) (*torchWord, error) {
	kind, rest, _ := strings.Cut(rest, " ")
	w := &torchWord{kind: kind, text: rest}
	switch kind {
	case "python", "imported", "unsupported", "trouble":
		if rest == "" || len(rest) > maxTrouble {
			return nil, fmt.Errorf("torch %s: text of 1 to %d bytes belongs to it", kind, maxTrouble)
		}
	case "snapshot":
		if !filepath.IsAbs(rest) {
			return nil, errors.New("a snapshot is an absolute path")
		}
	case "device", "oom":
		index, numbers, _ := strings.Cut(rest, " ")
		n, err := number(index)
		if err != nil || n >= maxDevices {
			return nil, fmt.Errorf("torch %s: %.40q is no number of a device", kind, index)
		}
		w.device = n
		if w.numbers, err = fields(numbers); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("torch %.40q is none of the hook's words", kind)
	}
	return w, nil
}

// maxFields is more than the hook tells of a device.
const maxFields = 16

func fields(text string) (map[string]uint64, error) {
	words := strings.Fields(text)
	if len(words) > maxFields {
		return nil, fmt.Errorf("there are more than %d numbers", maxFields)
	}
	found := map[string]uint64{}
	for _, word := range words {
		name, digits, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n > math.MaxInt64 {
			return nil, fmt.Errorf("%.40q is no NAME=NUMBER", word)
		}
		found[name] = n
	}
	return found, nil
}

// process is a Python process of the rank in which the hook runs.
type process struct {
	state   string
	why     string
	version string
	cuda    string
	devices map[int]TorchDevice
}

// torchRecord is what the hook has told of a rank's processes.
type torchRecord struct {
	seen      process // of any of them, the one that has come furthest
	processes map[int]*process
	snapshots []string
	trouble   string
}

// stateOrder is how far along a state is.
var stateOrder = []string{TorchNotSeen, TorchUnknown, TorchWaiting, TorchNoCUDA, TorchUnused, TorchReporting}

// take takes in a word of a process.
func (r *torchRecord) take(w *torchWord, pid int, at float64) error {
	switch w.kind {
	case "python":
		r.came(process{state: TorchWaiting, why: "torch is not imported (Python " + w.text + ")"})
	case "unsupported":
		r.came(process{state: TorchUnknown, why: w.text})
	case "imported":
		r.came(imported(w.text))
	case "snapshot":
		r.snapshots = append(r.snapshots, w.text)
		r.snapshots = r.snapshots[max(0, len(r.snapshots)-maxSnapshots):]
	case "trouble":
		r.trouble = w.text
	case "device", "oom":
		return r.device(w, pid, at)
	}
	return nil
}

func imported(text string) process {
	version, cuda, _ := strings.Cut(text, " ")
	if cuda == "" || cuda == "none" {
		return process{state: TorchNoCUDA, version: version, why: "torch " + version + " is built without CUDA"}
	}
	return process{state: TorchUnused, version: version, cuda: cuda, why: "the program has not used CUDA by torch yet"}
}

// came notes how far a process is, where none was further.
func (r *torchRecord) came(p process) {
	if slices.Index(stateOrder, p.state) >= slices.Index(stateOrder, r.seen.state) {
		r.seen = p
	}
}

func (r *torchRecord) device(w *torchWord, pid int, at float64) error {
	p := r.processes[pid]
	if p == nil {
		p = &process{devices: map[int]TorchDevice{}}
		r.processes[pid] = p
	}
	d, known := p.devices[w.device]
	for !known && len(r.processes) > 1 && r.inAll() >= maxInAll {
		r.forget(pid)
	}
	d.Device, d.PID = w.device, pid
	if w.kind == "oom" {
		d.OOM = &TorchOOM{At: at, Requested: w.numbers["requested"], Total: w.numbers["total"], Free: w.numbers["free"]}
	} else {
		d = deviceOf(w, d, at)
	}
	p.devices[w.device] = d
	r.seen.state, r.seen.why = TorchReporting, ""
	return nil
}

func deviceOf(w *torchWord, before TorchDevice, at float64) TorchDevice {
	n := w.numbers
	d := TorchDevice{
		Device: before.Device, PID: before.PID, At: at, OOM: before.OOM,
		Allocated: n["allocated"], Reserved: n["reserved"], Inactive: n["inactive"],
		PeakAllocated: n["peak_allocated"], PeakReserved: n["peak_reserved"], Retries: n["retries"], OOMs: n["ooms"],
	}
	if largest, known := n["largest_free"]; known {
		d.LargestFree = &largest
	}
	return d
}

func (r *torchRecord) inAll() (devices int) {
	for _, p := range r.processes {
		devices += len(p.devices)
	}
	return devices
}

// forget drops the process that has been silent for longest, but for one.
func (r *torchRecord) forget(but int) {
	oldest, since := 0, math.Inf(1)
	for pid, p := range r.processes {
		if pid == but {
			continue
		}
		newest := 0.0
		for _, d := range p.devices {
			newest = max(newest, d.At)
		}
		if newest < since || newest == since && pid < oldest {
			oldest, since = pid, newest
		}
	}
	delete(r.processes, oldest)
}

// latest is what is known now; leader is the pid of the rank's leader.
func (r *torchRecord) latest(leader int) *Torch {
	t := &Torch{
		State: r.seen.state, Why: r.seen.why, Version: r.seen.version, CUDA: r.seen.cuda,
		Snapshots: slices.Clone(r.snapshots), Trouble: r.trouble,
	}
	for _, pid := range slices.Sorted(maps.Keys(r.processes)) {
		devices := r.processes[pid].devices
		for _, n := range slices.Sorted(maps.Keys(devices)) {
			d := devices[n]
			d.Child = pid != leader
			t.Devices = append(t.Devices, d)
		}
	}
	return t
}
