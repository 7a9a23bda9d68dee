//go:build linux

// Command cudaworker behaves towards devices as a process of PyTorch does: it sees those
// that CUDA would show it, takes the one of LOCAL_RANK, holds memory of it while it is
// there, and says what it got in one line of JSON. It needs no GPU: the machine is that
// of a scenario (see package gpus).
//
// What goes wrong is said in PyTorch's words on the standard error, with exit status 1.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// options are the flags.
type options struct {
	bytes  uint64
	then   []later
	stay   time.Duration
	until  string
	status int
	uid    int
	device string
}

// report is the line of JSON.
type report struct {
	Rank      string   `json:"rank"`
	LocalRank string   `json:"local_rank"`
	PID       int      `json:"pid"`
	Visible   []string `json:"visible"` // UUIDs, in CUDA's order
	UUID      string   `json:"uuid"`
	PCI       string   `json:"pci"`
	Index     int      `json:"index"`     // as nvidia-smi shows it
	CPUs      string   `json:"cpus"`      // of sched_getaffinity
	Mempolicy *policy  `json:"mempolicy"` // of get_mempolicy; nil: the kernel has no NUMA
	kind      string   // of the holding
}

// Policies of memory belong to a thread, and only the main one is the starter's child.
func init() { runtime.LockOSThread() }

func main() {
	o, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cudaworker:", err)
		os.Exit(2)
	}
	if err := work(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(o.status)
}

func parse() (options, error) {
	var o options
	size := flag.String("bytes", "2GiB", "memory to hold, in MiB or GiB")
	then := flag.String("then", "", "what to hold later, and by it resident memory: a list such as 500ms=4GiB,1s=1GiB+300MiB; each time counts from the one before")
	flag.DurationVar(&o.stay, "for", 0, "how long to stay")
	flag.StringVar(&o.until, "until", "", "stay until this file is there, 10 minutes at most")
	flag.IntVar(&o.status, "exit", 0, "exit status")
	flag.IntVar(&o.uid, "uid", -1, "become this user, as somebody else's process")
	flag.StringVar(&o.device, "device", "", "take the device of this UUID, whatever the environment says")
	flag.Parse()
	var err error
	if o.bytes, err = bytes(*size); err == nil {
		o.then, err = laters(*then)
	}
	return o, err
}

func bytes(text string) (uint64, error) {
	for unit, factor := range map[string]uint64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, is := strings.CutSuffix(text, unit); is {
			n, err := strconv.ParseUint(digits, 10, 40)
			return n * factor, err
		}
	}
	return 0, fmt.Errorf("-bytes %s: not a size such as 2GiB", text)
}

func work(o options) error {
	folder := gpus.Here()
	if o.uid >= 0 {
		if err := syscall.Setresuid(o.uid, o.uid, o.uid); err != nil {
			return err
		}
	}
	forget, line, err := take(folder, o)
	if err != nil {
		return err
	}
	defer forget()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		return err
	}
	return wait(o, schedule{left: o.then, next: time.Now(), holding: gpus.Holding{PID: os.Getpid(), UUID: line.UUID, Bytes: o.bytes, Kind: line.kind, Name: os.Args[0]}})
}

func wait(o options, s schedule) error {
	deadline := time.Now().Add(o.stay)
	if o.until != "" && o.stay == 0 {
		deadline = time.Now().Add(10 * time.Minute)
	}
	for time.Now().Before(deadline) {
		if err := s.keep(time.Now()); err != nil {
			return err
		}
		if o.until != "" {
			if _, err := os.Stat(o.until); err == nil {
				return nil
			}
		}
		time.Sleep(min(20*time.Millisecond, time.Until(deadline)))
	}
	return nil
}

// take chooses the device and notes that its memory is held. One process at a time looks
// and notes, as the driver has one lock.
func take(folder string, o options) (forget func() error, line report, err error) {
	unlock, err := lock(filepath.Join(folder, gpus.StateFolder, "lock"))
	if err != nil {
		return nil, line, err
	}
	defer unlock()
	s, err := gpus.Read(folder)
	if err != nil {
		return nil, line, err
	}
	held, err := gpus.Held(folder)
	if err != nil {
		return nil, line, err
	}
	visible := cuda.FromEnvironment(s)
	chosen, err := choose(s, visible, o.device)
	if err != nil {
		return nil, line, err
	}
	kind := "compute"
	if cuda.UsesMPS() {
		kind = "mps"
	}
	if err := cuda.Open(s, visible, chosen, kind, o.bytes, held); err != nil {
		return nil, line, err
	}
	line = report{Rank: os.Getenv("RANK"), LocalRank: os.Getenv("LOCAL_RANK"), PID: os.Getpid(), Visible: []string{},
		UUID: chosen.UUID, PCI: chosen.PCI, Index: chosen.GPU, CPUs: affinity(), Mempolicy: mempolicy(), kind: kind}
	for _, d := range visible {
		line.Visible = append(line.Visible, d.UUID)
	}
	forget, err = gpus.Note(folder, gpus.Holding{PID: os.Getpid(), UUID: chosen.UUID, Bytes: o.bytes, Kind: kind, Name: os.Args[0]})
	return forget, line, err
}

// choose takes the device of LOCAL_RANK, 0 where it is not set, or that of a UUID.
func choose(s *gpus.Scenario, visible []cuda.Device, uuid string) (cuda.Device, error) {
	if uuid != "" {
		for _, d := range cuda.Visible(s, &uuid, "PCI_BUS_ID") {
			return d, nil
		}
		return cuda.Device{}, fmt.Errorf("cudaworker: no device %s", uuid)
	}
	local := 0
	if text := os.Getenv("LOCAL_RANK"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return cuda.Device{}, fmt.Errorf("cudaworker: LOCAL_RANK: %w", err)
		}
		local = n
	}
	return cuda.Nth(visible, local)
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	_ = f.Chmod(0o666) // another user's it is already, if this fails
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
