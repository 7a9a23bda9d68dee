// Package config reads a job file: HCL in, a Job or diagnostics with their
// places out. Evaluation is hermetic (the source, the variables given with -var
// and the words after "--" decide everything; no environment, clock, network or
// other file), so that the launcher and the coordinator evaluate the same source
// to the same job. What the launching machine's environment adds, and the file of tasks,
// are put into the source before: see Source.WithEnviron and WithTasks.
package config

import (
	"cmp"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/muster-dev/muster/launcher/check/allocator"
	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config/deviceref"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/hostlist"
	"github.com/muster-dev/muster/launcher/memory"
)

// Source is everything that decides what a job file means. It travels to the
// coordinator as it is.
type Source struct {
	Filename string            `json:"filename"`       // as the user typed it; used in diagnostics
	Text     []byte            `json:"text"`           // the file's bytes
	Vars     map[string]string `json:"vars,omitempty"` // -var NAME=VALUE, as typed
	Args     []string          `json:"args,omitempty"` // the words after "--", appended to command
	Dir      string            `json:"dir,omitempty"`  // the launcher's folder: where a relative workdir of this machine starts
	// Instead takes the place of the job's command, for what muster has ranks do of its own:
	// see Job.instead.
	Instead []string `json:"instead,omitempty"`
	// Forwarded are the variables of the launching machine that forward names. All are
	// taken for secrets.
	Forwarded map[string]string `json:"forwarded,omitempty"`
	// Tasks is the file that tasks_file names: see WithTasks.
	Tasks *TasksText `json:"tasks,omitempty"`
}

// Kinds of a hosts block.
const (
	HostsLocal = "local" // this machine, without SSH
	HostsSSH   = "ssh"
)

// What a job's command may be written for: which library finds the other ranks.
const (
	ProgramTorch = "torch" // and whatever reads torchrun's variables
	ProgramJAX   = "jax"
)

// Job is a decoded job file. All values are checked and defaults filled in.
type Job struct {
	Name      string
	Command   []string // argv of every worker, Source.Args appended; never a shell line
	HostsKind string   // HostsLocal or HostsSSH
	Hosts     []Host   // in job file order, ranges expanded, overrides applied; Hosts[0] is the head host
	Program   string   `json:",omitempty"` // ProgramJAX; "" and ProgramTorch: as torchrun starts it
	Backend   string   // "gloo", "nccl", "none" or "" (chosen by what the hosts have)
	// Independent is set where ranks do not talk to each other: each ends and restarts alone.
	Independent bool `json:",omitempty"`
	// Tasks are what independent ranks take one after the other; nil: each rank is one task.
	Tasks     []Task `json:",omitempty"`
	Placement Placement
	Plugin    *Plugin       // a site's own prober of devices; nil: muster's
	Python    string        // interpreter whose torch is looked for; "": the command's own
	Lease     time.Duration // how long a silent host may live; 30s unless set
	Ports     PortRange     // ports that muster chooses lie here; zero: the default range
	Policies
	Libraries

	// Forward are the patterns of variables that the launching machine gives to ranks;
	// what they found comes with EnvOf.
	Forward []string `json:",omitempty"`

	environment
}

// Policies say what happens while a job runs and when it fails, and what is shown of it.
type Policies struct {
	Stop      Stop
	EarlyExit EarlyExit
	Hang      *Hang    `json:",omitempty"` // nil: a long silence is said, and no more
	Restart   *Restart `json:",omitempty"` // nil: never
	Progress  Progress `json:",omitzero"`
	Observe   Observe  `json:",omitzero"`
	Check     Check
	Logs      Logs
}

// Libraries are what a job file says of the libraries that ranks use; nil without a block.
type Libraries struct {
	NCCL      *nccl.Settings      `json:",omitempty"`
	Allocator *allocator.Settings `json:",omitempty"`
	MPS       *MPS                `json:",omitempty"`
	Memory    *memory.Model       `json:",omitempty"` // of the model
}

// environment is what EnvOf needs.
type environment struct {
	env       hclsyntax.Expression // nil without one
	forwarded map[string]string    // of Source, as far as Forward has it
	hostEnv   []string             // that env_of_host is called with
	scope     *expr.Scope
}

// Host is one host as the job file describes it.
type Host struct {
	// Name is what output is labelled with: Address, with ":port" where the job
	// file has the same address with several ports.
	Name    string
	Address string // ssh alias, name or address to connect to, without user and port
	User    string // from user@host or a host block; "" leaves it to ssh_config
	Port    int    // from host:port or a host block; 0 leaves it to ssh_config
	PerHost int    // ranks on this host; 0: one per GPU, or as PerGPU says
	PerGPU  bool   // per_host = "gpu" is written: a host without GPUs is then an error
	Devices Devices
	Workdir string // of ssh hosts: "" is the user's home there, a leading ~/ too; of this machine: absolute, or beginning with ~
	Setup   string // bash text run once on the host before the first attempt; "" for none
	Range   hcl.Range

	env       hclsyntax.Expression // the host block's own env, nil without one
	listed    hostlist.Host        // as the job file has it
	perHostAt hcl.Range            // of per_host as this host has it; zero where none is written
}

// AskedAt is where the job file says how many devices the host's ranks get, or which: a number
// of devices, per_host, or else devices; FILE:LINE,COLUMNS. "" where it says nothing of them.
func (h *Host) AskedAt() string {
	if written := placeOf(h.perHostAt); written != "" && h.Devices.Kind != DevicesCount {
		return written
	}
	return cmp.Or(placeOf(h.Devices.Range), placeOf(h.perHostAt))
}

// placeOf is a range in the job file as messages have it; "" of none.
func placeOf(at hcl.Range) string {
	if at.Filename == "" {
		return ""
	}
	return at.String()
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

// RankScope is what env expressions can refer to.
type RankScope = expr.RankScope

// EnvVar is one variable of the job's env for one rank.
type EnvVar struct {
	Name, Value string
	Source      string // FILE:LINE of the entry, or where it is forwarded from
	// Sensitive is set where the value, or what it was made of, is a secret: it goes to
	// the rank and nowhere else, not to a terminal, a file or a log.
	Sensitive bool `json:",omitempty"`
}

// Placement is how ranks and devices are brought together, on all hosts.
type Placement struct {
	Groups      []Group // of ranks in a row that must sit on fast links; by size, largest first
	Equal       bool    // hosts with different numbers of ranks are an error
	Shared      bool    // several ranks on one GPU, and busy GPUs, are meant
	Visibility  string  // "host", "rank", or "" (host, unless a device demands rank)
	DeviceNames string  // "uuid", "index", or "" (uuid, unless the torch found is too old for it)
	Bind        string  // "numa" (default) or "none"
	MinFree     uint64  // bytes; a GPU with this much free memory is not busy; 0: not set
	// VisibilityAt and DeviceNamesAt are where these are written, FILE:LINE,COLUMNS; "" where they
	// are not.
	VisibilityAt, DeviceNamesAt string
}

// RanksPerGPU is how many ranks a GPU gets at most, as long as nothing else is said.
func (j *Job) RanksPerGPU() int {
	if j.MPS == nil {
		return 1
	}
	return max(1, j.MPS.RanksPerGPU)
}

// SharesGPUs reports whether several ranks of the run may be on one GPU.
func (j *Job) SharesGPUs() bool { return j.Placement.Shared || j.MPS != nil }

// WithOthers reports whether others may use the run's GPUs too.
func (j *Job) WithOthers() bool { return j.Placement.Shared || j.MPS != nil && j.MPS.Existing }

// Group is an entry of groups, such as tensor = 4: ranks 0-3, 4-7, ...
type Group struct {
	Name  string
	Size  int
	Range hcl.Range
}

// Kinds of Devices.
const (
	DevicesAll   = deviceref.All  // every GPU that may be used (the default)
	DevicesCount = "count"        // so many idle ones
	DevicesList  = "list"         // those, in this order
	DevicesNone  = deviceref.None // the job uses none
	// DevicesProfile are all MIG devices of one profile, DevicesProfiles as many idle ones as
	// the list has elements, each by its profile.
	DevicesProfile  = "profile"
	DevicesProfiles = "profiles"
)

// Devices says which devices of a host are used.
type Devices struct {
	Kind  string
	Count int         // of DevicesCount
	List  []DeviceRef // of DevicesList and DevicesProfiles, in the order of ranks; of DevicesProfile one
	Range hcl.Range   // of the attribute; zero where none is written
}

// Named reports whether the job file says which devices are used, whoever else uses them.
func (d Devices) Named() bool { return d.Kind == DevicesList }

// DeviceRef names a device: its number in nvidia-smi, a UUID or the beginning of one, a
// PCI address, or the UUID of a MIG device; or the profile of any MIG device, such as
// "1g.10gb". What it names only the host's facts tell.
type DeviceRef struct {
	Text  string
	Range hcl.Range
}

// Plugin is a program that looks at devices, in place of muster's own.
type Plugin struct {
	Name   string
	Path   string   // on each host; a leading ~/ is the user's home there
	Args   []string // of the program
	SHA256 string   // of the file, 64 hex digits in lower case
	Range  hcl.Range
}
