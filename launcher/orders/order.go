package orders

import (
	"time"
)

// Order is what the coordinator tells an agent. One field is set.
type Order struct {
	Prepare  *Prepare  `json:"prepare,omitempty"`
	HoldPort *HoldPort `json:"hold_port,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	Signal   *Signal   `json:"signal,omitempty"`
	Follow   *Follow   `json:"follow,omitempty"`
	Look     *Look     `json:"look,omitempty"`
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

// Start starts the ranks of this host. Each is answered by Started or Ended.
type Start struct {
	Attempt int           `json:"attempt"`
	Command []string      `json:"command"`
	Ranks   []RankStart   `json:"ranks"`
	Signal  string        `json:"signal"` // that ends workers, such as "SIGTERM"
	Grace   time.Duration `json:"grace"`  // from it to SIGKILL
	// Checkpoints is the folder whose newest file tells of progress, relative to the work
	// folder or below ~/; "": none.
	Checkpoints string `json:"checkpoints,omitempty"`
	// Watch has the host tell who holds its devices, as long as the ranks run.
	Watch bool `json:"watch,omitempty"`
}

// RankStart is one worker.
type RankStart struct {
	Rank  int               `json:"rank"`
	Local int               `json:"local"`
	Env   map[string]string `json:"env"` // wins over everything that the host has
	// Defaults are set where neither the host's environment nor setup has the name.
	Defaults map[string]string `json:"defaults,omitempty"`
	CPUs     []int             `json:"cpus,omitempty"` // that it is bound to; none: it is not
	Node     *int              `json:"node,omitempty"` // NUMA node whose memory it prefers
}

// Stop ends the workers of an attempt. Kill skips the grace. Each worker's end is
// reported by Ended.
type Stop struct {
	Attempt int    `json:"attempt"`
	Kill    bool   `json:"kill,omitempty"`
	Reason  string `json:"reason"`
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

// Look has the host tell once who holds its devices. Answered by a Sight with the same
// number.
type Look struct {
	Number int `json:"number"` // from 1
}

// Finish ends the agent, and with it the keeper. Answered by Finished.
type Finish struct{}
