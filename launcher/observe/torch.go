package observe

import (
	"cmp"
	"errors"
	"fmt"
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
	maxFields    = 16 // more than the hook reports of a device
)

// torchRecord is what the hook has reported of a rank's processes: of the one that has come furthest, and of devices.
type torchRecord struct {
	Torch
	devices map[processDevice]TorchDevice
}

type processDevice struct{ pid, device int }

func newTorchRecord() *torchRecord {
	return &torchRecord{devices: map[processDevice]TorchDevice{}, Torch: Torch{
		State: TorchNotSeen,
		Why: "muster's hook has not been seen: no Python has been started yet, or with -S, -I or -E, or with another " +
			"PYTHONPATH",
	}}
}

var stateOrder = []string{TorchNotSeen, TorchUnknown, TorchWaiting, TorchNoCUDA, TorchUnused, TorchReporting}

// take takes in a line of the hook, without its first word:
//
//	python 3.11.7
//	imported 2.5.1 12.4         (or: imported 2.5.1 none)
//	unsupported WHY
//	device 0 allocated=1 reserved=2 ...
//	oom 0 requested=1 total=2 free=3
//	snapshot /path
//	trouble TEXT
func (r *torchRecord) take(line string, pid int, at float64) error {
	if r == nil {
		return errors.New("the job file does not ask for it: observe { torch = true }")
	}
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "python", "imported", "unsupported", "trouble":
		if rest == "" || len(rest) > maxTrouble {
			return fmt.Errorf("torch %s: text of 1 to %d bytes belongs to it", kind, maxTrouble)
		}
	}
	switch kind {
	case "python":
		r.come(Torch{State: TorchWaiting, Why: "torch is not imported (Python " + rest + ")"})
	case "unsupported":
		r.come(Torch{State: TorchUnknown, Why: rest})
	case "imported":
		r.come(imported(rest))
	case "trouble":
		r.Trouble = rest
	case "snapshot":
		if !filepath.IsAbs(rest) {
			return errors.New("a snapshot is an absolute path")
		}
		r.Snapshots = append(r.Snapshots, rest)
		r.Snapshots = r.Snapshots[max(0, len(r.Snapshots)-maxSnapshots):]
	case "device", "oom":
		return r.takeDevice(kind, rest, pid, at)
	default:
		return fmt.Errorf("torch %.40q is none of the hook's words", kind)
	}
	return nil
}

func imported(text string) Torch {
	version, cuda, _ := strings.Cut(text, " ")
	if cuda == "" || cuda == "none" {
		return Torch{State: TorchNoCUDA, Version: version, Why: "torch " + version + " is built without CUDA"}
	}
	return Torch{State: TorchUnused, Version: version, CUDA: cuda, Why: "the program has not used CUDA by torch yet"}
}

// come notes how far a process is, where none was further.
func (r *torchRecord) come(t Torch) {
	if slices.Index(stateOrder, t.State) >= slices.Index(stateOrder, r.State) {
		r.State, r.Why, r.Version, r.CUDA = t.State, t.Why, t.Version, t.CUDA
	}
}

func (r *torchRecord) takeDevice(kind, rest string, pid int, at float64) error {
	index, text, _ := strings.Cut(rest, " ")
	device, err := number(index)
	if err != nil || device >= maxDevices {
		return fmt.Errorf("torch %s: %.40q is no number of a device", kind, index)
	}
	n, err := numbers(text)
	if err != nil {
		return err
	}
	key := processDevice{pid, device}
	d, known := r.devices[key]
	for !known && len(r.devices) >= maxInAll {
		r.forgetOldest()
	}
	d.Device, d.PID = device, pid
	if kind == "oom" {
		d.OOM = &TorchOOM{At: at, Requested: n["requested"], Total: n["total"], Free: n["free"]}
	} else {
		d = TorchDevice{
			Device: device, PID: pid, At: at, OOM: d.OOM,
			Allocated: n["allocated"], Reserved: n["reserved"], Inactive: n["inactive"],
			PeakAllocated: n["peak_allocated"], PeakReserved: n["peak_reserved"], Retries: n["retries"], OOMs: n["ooms"],
		}
		if largest, known := n["largest_free"]; known {
			d.LargestFree = &largest
		}
	}
	r.devices[key] = d
	r.State, r.Why = TorchReporting, ""
	return nil
}

func numbers(text string) (map[string]uint64, error) {
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

// forgetOldest drops the device that nothing was reported of for longest.
func (r *torchRecord) forgetOldest() {
	var oldest processDevice
	since := math.Inf(1)
	for key, d := range r.devices {
		if d.At < since {
			oldest, since = key, d.At
		}
	}
	delete(r.devices, oldest)
}

func (r *torchRecord) latest(leader int) *Torch {
	t := r.Torch
	t.Snapshots = slices.Clone(r.Snapshots)
	for _, d := range r.devices {
		d.Child = d.PID != leader
		t.Devices = append(t.Devices, d)
	}
	slices.SortFunc(t.Devices, func(a, b TorchDevice) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device))
	})
	return &t
}
