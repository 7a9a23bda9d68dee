package message

import (
	"time"
)

// Command is what the coordinator asks an agent to do. One field is set.
type Command struct {
	Prepare  *Prepare  `json:"prepare,omitempty"`
	HoldPort *HoldPort `json:"hold_port,omitempty"`
	Serve    *Serve    `json:"serve,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	Signal   *Signal   `json:"signal,omitempty"`
	Follow   *Follow   `json:"follow,omitempty"`
	Look     *Look     `json:"look,omitempty"`
	Stacks   *Stacks   `json:"stacks,omitempty"`
	Pace     *Pace     `json:"pace,omitempty"`
	Open     *Open     `json:"open,omitempty"`
	Visit    *Visit    `json:"visit,omitempty"`
	Finish   *Finish   `json:"finish,omitempty"`
}

// Prepare makes the host ready: the work folder is looked up, setup is run, the
// command is found. Answered by Prepared.
type Prepare struct {
	Workdir string `json:"workdir,omitempty"` // "": the home folder; ~/ is the home folder
	Setup   string `json:"setup,omitempty"`   // bash text
	Program string `json:"program"`           // first word of the command
	// Python is the interpreter whose torch is looked for; "": the program's own.
	Python string `json:"python,omitempty"`
	// Devices are UUIDs of devices that the run uses. Where Claim is set the host is not
	// ready unless no other run has them; else that is only said.
	Devices []string `json:"devices,omitempty"`
	Claim   bool     `json:"claim,omitempty"`
	// Names are variables whose values the job file refers to; Prepared tells them.
	Names []string `json:"names,omitempty"`
}

// HoldPort takes a port for rank 0 to listen on. Answered by PortHeld.
type HoldPort struct {
	Attempt int `json:"attempt"`
	First   int `json:"first"` // the range to choose from
	Last    int `json:"last"`
}

// Serve has daemons of MPS run: those that do not run yet are started, the others are seen to
// be well. Answered by Served.
type Serve struct {
	Number  int         `json:"number"` // that the answer has
	Daemons []MPSDaemon `json:"daemons"`
	Program string      `json:"program,omitempty"` // of the host, nvidia-cuda-mps-control
}

// MPSDaemon is a daemon of MPS for one device.
type MPSDaemon struct {
	Device string `json:"device"` // UUID
	Name   string `json:"name"`   // as people call it: "GPU 0"
	// Existing is the pipe directory of a daemon that is there already; "": one of the run's
	// own, with these limits for every client. 0 is none.
	Existing string  `json:"existing,omitempty"`
	Threads  float64 `json:"threads,omitempty"` // per cent
	Memory   uint64  `json:"memory,omitempty"`  // bytes
	Locals   []int   `json:"locals"`            // its clients-to-be, by their places on the host
}

// Start starts the ranks of this host. Each is answered by Started or Ended.
type Start struct {
	Attempt int           `json:"attempt"`
	Slots   int           `json:"slots"` // how many ranks run on the host at once, those of other orders too
	Command []string      `json:"command"`
	Ranks   []RankStart   `json:"ranks"`
	Signal  string        `json:"signal"` // that ends workers, such as "SIGTERM"
	Grace   time.Duration `json:"grace"`  // from it to SIGKILL
	// Checkpoints is the folder whose newest file tells of progress, relative to the work
	// folder or below ~/; "": none.
	Checkpoints string `json:"checkpoints,omitempty"`
	// Observe says what workers are made to tell of themselves.
	Observe Observe `json:"observe,omitzero"`
	// Watch has the host tell who holds its devices, as long as ranks run.
	Watch bool `json:"watch,omitempty"`
	// Recorder has torch's flight recorder of collectives listen for when to write what it
	// has, and write it into the run's folder, where nobody else has said so.
	Recorder bool `json:"recorder,omitempty"`
	// Alone starts the ranks beside those that run: each has attempts of its own.
	Alone bool `json:"alone,omitempty"`
}

// Observe is the job file's block of that name.
type Observe struct {
	Torch    bool `json:"torch,omitempty"`    // torch's own numbers of GPU memory
	Snapshot bool `json:"snapshot,omitempty"` // a file of torch's on growth and out of memory
}

// RankStart is one worker.
type RankStart struct {
	Rank  int               `json:"rank"`
	Local int               `json:"local"`
	Env   map[string]string `json:"env"` // wins over everything that the host has
	// Defaults are set where neither the host's environment nor setup has the name.
	Defaults map[string]string `json:"defaults,omitempty"`
	Device   string            `json:"device,omitempty"` // UUID of its device; "": none
	Seen     int               `json:"seen,omitempty"`   // N of cuda:N by which it calls that
	CPUs     []int             `json:"cpus,omitempty"`   // that it is bound to; none: it is not
	Node     *int              `json:"node,omitempty"`   // NUMA node whose memory it prefers
}

// Stop ends workers: those of Ranks, or all. Kill skips the grace. Each worker's end is
// reported by Ended.
type Stop struct {
	Attempt int    `json:"attempt"`
	Kill    bool   `json:"kill,omitempty"`
	Reason  string `json:"reason"`
	Ranks   []int  `json:"ranks,omitempty"`
}

// Signal passes a signal on to the leader of each rank.
type Signal struct {
	Attempt int    `json:"attempt"`
	Name    string `json:"name"` // such as "SIGUSR1"
}

// FromTail stands for the last lines of a file as a place to read from.
const FromTail = -1

// Follow pushes the output of ranks under a subscription, until they ended.
type Follow struct {
	Subscription string        `json:"subscription"`
	Attempt      int           `json:"attempt"`
	Ranks        map[int]int64 `json:"ranks"` // from which byte of its file on, or FromTail
}

// Look has the host tell once who holds its devices. Answered by a DeviceUsage with the same
// number.
type Look struct {
	Number int `json:"number"` // from 1
}

// Pace says how often the host tells a digest of its samples.
type Pace struct {
	Every time.Duration `json:"every"`
}

// Stacks has the host find out where ranks are in their programs. Answered by a StacksTaken
// with the same number.
type Stacks struct {
	Number int   `json:"number"` // from 1
	Ranks  []int `json:"ranks"`
	Deep   bool  `json:"deep"` // stacks too, not only the last lines of output
	// Signal has programs that catch it write their stacks, such as "SIGUSR1"; "": none is sent.
	Signal string `json:"signal,omitempty"`
}

// Finish ends the agent, and with it the keeper. Answered by Finished.
type Finish struct{}
