// Package config reads a job file: HCL in, a Job or diagnostics with their
// places out. Evaluation is hermetic (the source, the variables given with -var
// and the words after "--" decide everything; no environment, clock, network or
// other file), so that the launcher and the coordinator evaluate the same source
// to the same job. It knows nothing of hosts beyond their names, nor of processes.
package config

import (
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Source is everything that decides what a job file means. It travels to the
// coordinator as it is.
type Source struct {
	Filename string            `json:"filename"`       // as the user typed it; used in diagnostics
	Text     []byte            `json:"text"`           // the file's bytes
	Vars     map[string]string `json:"vars,omitempty"` // -var NAME=VALUE, as typed
	Args     []string          `json:"args,omitempty"` // the words after "--", appended to command
	Dir      string            `json:"dir,omitempty"`  // the launcher's folder: where a relative workdir of this machine starts
}

// Kinds of a hosts block.
const (
	HostsLocal = "local" // this machine, without SSH
	HostsSSH   = "ssh"
)

// Job is a decoded job file. All values are checked and defaults filled in.
type Job struct {
	Name      string
	Command   []string // argv of every worker, Source.Args appended; never a shell line
	HostsKind string   // HostsLocal or HostsSSH
	Hosts     []Host   // in job file order, ranges expanded, overrides applied; Hosts[0] is the head host
	Backend   string   // "gloo", "nccl", "none" or "" (chosen by what the hosts have)
	Stop      Stop
	EarlyExit EarlyExit
	Logs      Logs
	Lease     time.Duration // how long a silent host may live; 30s unless set
	Ports     PortRange     // ports that muster chooses lie here; zero: the default range

	// Env is evaluated per rank: see EnvOf. The expressions of the job's env
	// attribute and of the host's override are kept inside.
	env   hclsyntax.Expression // nil without one
	scope *scope
}

// Host is one host as the job file describes it.
type Host struct {
	// Name is what output is labelled with: Address, with ":port" where the job
	// file has the same address with several ports.
	Name    string
	Address string // ssh alias, name or address to connect to, without user and port
	User    string // from user@host or a host block; "" leaves it to ssh_config
	Port    int    // from host:port or a host block; 0 leaves it to ssh_config
	PerHost int    // ranks on this host; 0 leaves it to the plan
	Workdir string // of ssh hosts: "" is the user's home there, a leading ~/ too; of this machine: absolute, or beginning with ~
	Setup   string // bash text run once on the host before the first attempt; "" for none
	Range   hcl.Range

	env     hclsyntax.Expression // the host block's own env, nil without one
	written string               // [user@]address[:port], as the job file has it
}

// Stop is how workers are ended.
type Stop struct {
	Grace  time.Duration // between the stop signal and SIGKILL; 30s unless set
	Signal string        // "SIGTERM" unless set; "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT"
}

// EarlyExit is what happens when a rank ends well while others run on.
type EarlyExit struct {
	Notice time.Duration // after which it is said; 30s unless set
	Limit  time.Duration // after which the run has failed; 10m unless set
}

// Logs says whose output the launcher shows. Files are always written.
type Logs struct {
	Show RankSet // every rank unless set
}

// PortRange is an inclusive range of TCP ports. The zero value means not set.
type PortRange struct{ First, Last int }

// RankScope is what env expressions can refer to: rank.global, rank.local,
// rank.world_size, host.name, host.index.
type RankScope struct {
	Global, Local, WorldSize int
	HostName                 string
	HostIndex                int
}

// EnvVar is one variable of the job's env for one rank.
type EnvVar struct {
	Name, Value string
	Source      string // FILE:LINE of the entry
}
