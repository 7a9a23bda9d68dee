package gpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

func nv(n int) gpu.Link { return gpu.Link("NV" + strconv.Itoa(n)) }

// Holding is a process's note that it holds memory of a device, one file in the state
// folder. It counts as long as that very process is there: a pid that was given to
// another process does not.
type Holding struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // field 22 of /proc/PID/stat
	UUID  string `json:"uuid"`  // of the GPU or MIG device
	Bytes uint64 `json:"bytes"`
	Kind  string `json:"kind"` // "compute", "graphics", "both", "mps"
	Name  string `json:"name"`
}

// Note writes the holding of a process into the state folder of a folder, and returns
// what takes it away again.
func Note(folder string, h Holding) (forget func() error, err error) {
	if h.Start, err = StartTime(h.PID); err != nil {
		return nil, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, StateFolder, fmt.Sprintf("%d-%s.json", h.PID, strings.ReplaceAll(h.UUID, "/", "_")))
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(hidden, text, 0o644); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(path) }, os.Rename(hidden, path)
}

// Held lists the holdings of processes that are alive.
func Held(folder string) ([]Holding, error) {
	paths, err := filepath.Glob(filepath.Join(folder, StateFolder, "[0-9]*.json"))
	if err != nil {
		return nil, err
	}
	var held []Holding
	for _, path := range paths {
		var h Holding
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if start, err := StartTime(h.PID); err == nil && start == h.Start {
			held = append(held, h)
		}
	}
	return held, nil
}

// StartTime is when a process was started, in clock ticks since the boot: proc(5), field
// 22 of /proc/PID/stat. A zombie holds no memory: it counts as gone.
func StartTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, field 2, is in parentheses and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// RaiseXid lets the driver report an Xid error of a GPU: all who wait for events of it get
// one.
func RaiseXid(folder, uuid string, xid uint64) error {
	return raise(folder, map[string]any{"uuid": uuid, "xid": xid})
}

// RaiseECC lets the driver report an error of a GPU's memory: one that was corrected, or,
// double, one that could not be.
func RaiseECC(folder, uuid string, double bool) error {
	kind := "single_bit"
	if double {
		kind = "double_bit"
	}
	return raise(folder, map[string]any{"uuid": uuid, "ecc": kind})
}

// raise writes an event. Names are in the order of events.
func raise(folder string, event map[string]any) error {
	text, err := json.Marshal(event)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(folder, StateFolder), fmt.Sprintf(".event-%d-", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(filepath.Dir(f.Name()), strings.TrimPrefix(filepath.Base(f.Name()), ".")+".json"))
}
