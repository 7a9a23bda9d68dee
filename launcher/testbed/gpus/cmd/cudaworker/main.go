//go:build linux

// Command cudaworker behaves towards devices as a process of PyTorch does: it sees those
// that CUDA would show it, takes the one of LOCAL_RANK, holds memory of it while it is
// there, and says what it got in one line of JSON. It needs no GPU: the machine is that
// of a scenario (see package gpus). Where its pipe folder has a daemon it is a client of
// MPS; package mps says what its flags do there.
//
// What goes wrong is said in PyTorch's words on the standard error, with exit status 1.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
	"github.com/muster-dev/muster/launcher/testbed/gpus/mps"
)

// options are the flags.
type options struct {
	bytes  uint64
	beyond uint64
	then   []later
	stay   time.Duration
	until  string
	status int
	uid    int
	device string

	contexts           int
	fault, stuck, deaf bool
	everywhere         bool
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
	MPS       *share   `json:"mps"`       // nil: it runs without MPS
	Share     *tried   `json:"share"`     // nil: it asks for no more, or runs without MPS
	kind      string   // of the holding
}

// share is what a client of MPS has of its device.
type share struct {
	Server     int     `json:"server"` // PID
	Percentage float64 `json:"percentage"`
	Limit      uint64  `json:"limit"` // bytes; 0: none
	// Free and Total are what cudaMemGetInfo tells before anything is allocated.
	Free  uint64 `json:"free"`
	Total uint64 `json:"total"`
}

// tried is what a client of MPS has found out that asks for more than it may have.
type tried struct {
	Right      bool   `json:"right"`   // it computes
	Refused    bool   `json:"refused"` // what -beyond asks for
	Free       uint64 `json:"free"`
	Processors int    `json:"processors"` // that its device shows it
}

// processors are those of an H200.
const processors = 132

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
	beyond := flag.String("beyond", "0MiB", "under MPS, say whether so much could be had too, in MiB or GiB")
	flag.DurationVar(&o.stay, "for", 0, "how long to stay")
	flag.StringVar(&o.until, "until", "", "stay until this file is there, 10 minutes at most")
	flag.IntVar(&o.status, "exit", 0, "exit status")
	flag.IntVar(&o.uid, "uid", -1, "become this user, as somebody else's process")
	flag.StringVar(&o.device, "device", "", "take the device of this UUID, whatever the environment says")
	flag.IntVar(&o.contexts, "contexts", 1, "how many contexts to have under MPS")
	flag.BoolVar(&o.everywhere, "everywhere", false, "have contexts on all visible devices under MPS")
	flag.BoolVar(&o.fault, "fault", false, "end by an illegal memory access")
	flag.BoolVar(&o.stuck, "stuck", false, "stay although the contexts are lost")
	flag.BoolVar(&o.deaf, "deaf", false, "take no notice of SIGTERM")
	flag.Parse()
	var err error
	if o.bytes, err = bytes(*size); err == nil {
		o.then, err = laters(*then)
	}
	if err == nil {
		o.beyond, err = bytes(*beyond)
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
	if o.deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	p, err := start(folder)
	if err != nil {
		return err
	}
	forget, line, err := p.take(o)
	if err != nil {
		return err
	}
	defer forget()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		return err
	}
	s := schedule{left: o.then, next: time.Now(), holding: gpus.Holding{PID: os.Getpid(), UUID: line.UUID, Bytes: o.bytes, Kind: line.kind, Name: os.Args[0]}}
	if err := p.wait(o, s); err != nil || !o.fault {
		return err
	}
	return p.fault()
}

// process is this one: what CUDA has found out at its start, and what it took.
type process struct {
	folder  string
	machine *gpus.Scenario
	client  *mps.Client // nil: without MPS
	visible []cuda.Device
	chosen  cuda.Device
}

// start is cuInit. It may wait for MPS, without the lock.
func start(folder string) (*process, error) {
	s, err := gpus.Read(folder)
	if err != nil {
		return nil, err
	}
	p := &process{folder: folder, machine: s, visible: cuda.FromEnvironment(s)}
	if len(cuda.Visible(s, nil, "")) == 0 {
		return p, nil // there is nothing to share
	}
	if p.client, err = mps.Connect(); p.client != nil {
		p.visible = cuda.AmongFromEnvironment(p.client.Devices)
	}
	return p, err
}

// lost is nil for ever without MPS.
func (p *process) lost() <-chan error {
	if p.client == nil {
		return nil
	}
	return p.client.Lost
}

// fault makes a kernel meet an illegal address, and returns what the process hears of it.
func (p *process) fault() error {
	if err := gpus.RaiseXid(p.folder, p.machine.GPUs[p.chosen.GPU].UUID, 31); err != nil {
		return err
	}
	if p.client == nil {
		return mps.ErrIllegalAddress
	}
	if err := p.client.Fault(p.chosen); err != nil {
		return err
	}
	return <-p.client.Lost
}

// wait returns when the time is over, or the contexts are lost.
func (p *process) wait(o options, s schedule) (lost error) {
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
				return lost
			}
		}
		select {
		case lost = <-p.lost():
			if !o.stuck {
				return lost
			}
		case <-time.After(min(20*time.Millisecond, time.Until(deadline))):
		}
	}
	return lost
}

// take chooses the device and notes that its memory is held. One process at a time looks
// and notes, as the driver has one lock.
func (p *process) take(o options) (forget func() error, line report, err error) {
	if p.chosen, err = p.choose(o.device); err != nil {
		return nil, line, err
	}
	unlock, err := gpus.LockState(p.folder)
	if err != nil {
		return nil, line, err
	}
	defer unlock()
	if err := p.open(o, &line); err != nil {
		return nil, line, err
	}
	return p.note(o, line)
}

// open gets the contexts and the memory.
func (p *process) open(o options, line *report) error {
	held, err := gpus.Held(p.folder)
	if err != nil {
		return err
	}
	who := cuda.Process{}
	if p.client != nil {
		who = cuda.Process{Server: p.client.Server, Limit: p.client.Limit(p.chosen)}
		line.MPS = &share{Server: who.Server, Percentage: p.client.Percentage, Limit: who.Limit}
		line.MPS.Total, line.MPS.Free = cuda.Memory(p.machine, p.chosen, who, held)
		if free := line.MPS.Free; o.beyond > 0 {
			line.Share = &tried{Right: true, Refused: o.bytes+o.beyond > free, Free: free, Processors: int(processors * line.MPS.Percentage / 100)}
		}
		if err := p.contexts(o); err != nil {
			return err
		}
	}
	return cuda.Open(p.machine, p.visible, p.chosen, who, o.bytes, held)
}

// contexts makes those of a client; its memory is the chosen device's.
func (p *process) contexts(o options) error {
	for range o.contexts {
		if err := p.client.Context(p.chosen, o.bytes/uint64(o.contexts)); err != nil {
			return err
		}
	}
	for _, d := range p.visible {
		if o.everywhere && d.UUID != p.chosen.UUID {
			if err := p.client.Context(d, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// note writes down what is held. On devices older than Volta clients of MPS are in no list:
// their server holds what they hold.
func (p *process) note(o options, line report) (forget func() error, _ report, err error) {
	chosen := p.chosen
	line = report{Rank: os.Getenv("RANK"), LocalRank: os.Getenv("LOCAL_RANK"), PID: os.Getpid(), Visible: []string{},
		UUID: chosen.UUID, PCI: chosen.PCI, Index: chosen.GPU, CPUs: affinity(), Mempolicy: mempolicy(), MPS: line.MPS, Share: line.Share}
	for _, d := range p.visible {
		line.Visible = append(line.Visible, d.UUID)
	}
	kind := "compute"
	if p.client != nil {
		kind = "mps"
		if p.client.Booked(p.chosen) {
			return func() error { return nil }, line, nil
		}
	}
	line.kind = kind
	forget, err = gpus.Note(p.folder, gpus.Holding{PID: os.Getpid(), UUID: chosen.UUID, Bytes: o.bytes, Kind: kind, Name: os.Args[0]})
	return forget, line, err
}

// choose takes the device of LOCAL_RANK, 0 where it is not set, or that of a UUID.
func (p *process) choose(uuid string) (cuda.Device, error) {
	if uuid != "" {
		of := cuda.Visible(p.machine, &uuid, "PCI_BUS_ID")
		if p.client != nil {
			of = cuda.Among(p.client.Devices, uuid)
		}
		for _, d := range of {
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
	return cuda.Nth(p.visible, local)
}
