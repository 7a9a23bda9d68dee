package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/library"
)

var fileSchema = decode.Schema{
	Where:    "a job file",
	Blocks:   []decode.BlockType{{Name: "variable", Label: `"NAME"`, Many: true}, {Name: "job", Label: `"NAME"`}},
	Required: []string{"job"},
}

var jobSchema = decode.Schema{
	Where:    "a job block",
	Args:     []string{"command", "workdir", "setup", "env", "forward", "lease", "ports", "python", "mode", "tasks", "tasks_file", "program"},
	Required: []string{"command", "hosts"},
	Blocks: []decode.BlockType{
		{Name: "hosts", Label: `"ssh"`, Missing: `hosts "local" {} for this machine, or hosts "ssh" { names = [...] }`},
		{Name: "ranks"}, {Name: "nccl"}, {Name: "allocator"}, {Name: "mps"}, {Name: "memory"}, {Name: "plugin", Label: `"NAME"`},
		{Name: "stop"}, {Name: "early_exit"}, {Name: "hang"}, {Name: "restart"}, {Name: "progress"}, {Name: "observe"},
		{Name: "check"}, {Name: "logs"},
	},
	Elsewhere: torchrunNames,
}

// torchrunNames say how what torchrun's users know is written here: its flags, and
// what its documentation calls things.
var torchrunNames = map[string]string{
	"nproc_per_node": "ranks { per_host = N }",
	"nproc":          "ranks { per_host = N }",
	"workers":        "ranks { per_host = N }",
	"gpus":           "ranks { per_host = N }; without it, each GPU gets a rank",
	"devices":        "ranks { devices = ... }",
	"backend":        "ranks { backend = ... }",
	"nnodes":         `the hosts in hosts "ssh" { names = [...] }; there are as many as it names`,
	"nodes":          `the hosts in hosts "ssh" { names = [...] }`,
	"max_restarts":   "restart { attempts = N }",
	"master_addr":    "nothing: muster chooses the host where the ranks meet, and sets MASTER_ADDR",
	"master_port":    `nothing: muster chooses a free port and sets MASTER_PORT; ports = "20000-29999" says from which`,
	"rdzv_backend":   "nothing: muster has the ranks meet without one",
	"rdzv_endpoint":  "nothing: muster has the ranks meet without one",
	"rdzv_id":        "nothing: each run has its own",
	"standalone":     `hosts "local" {}`,
	"cwd":            "workdir = ...",
	"environment":    "env = { ... }",
	"args":           "all of it in command = [...]",
	"script":         `command = ["python", "train.py"]`,
	"module":         `command = ["python", "-m", "package.train"]`,
}

const defaultLease = 30 * time.Second

// decodeFile decodes the top level.
func decodeFile(src Source, f *decode.File) *Job {
	root := f.Root()
	root.Open(fileSchema)
	f.Variables(root.Blocks("variable"))
	job := &Job{}
	if b := root.Block("job"); b != nil {
		job = decodeJob(src, b)
	}
	job.instead(src.Instead)
	tryEnv(f, job)
	f.WarnUnused(root.Blocks("variable"))
	return job
}

func decodeJob(src Source, b *decode.Block) *Job {
	b.Open(jobSchema)
	ranks := decodeRanks(b.Block("ranks"))
	job := &Job{
		Name:      jobName(b),
		Command:   decodeCommand(b.Arg("command"), src.Args),
		Program:   decode.OneOf(b.Arg("program"), "", []string{ProgramTorch, ProgramJAX}),
		Backend:   ranks.backend,
		Placement: ranks.placement,
		Plugin:    decodePlugin(b.Block("plugin")),
		Python:    decodePython(b.Arg("python")),
		Lease:     decode.Duration(b.Arg("lease"), defaultLease, time.Second, time.Hour),
		Ports:     decodePorts(b.Arg("ports")),
	}
	job.env, job.scope = decode.EnvExpr(b.Arg("env")), b.File.Scope
	job.Independent = decode.OneOf(b.Arg("mode"), modeDistributed, modes) == modeIndependent
	job.Tasks = decodeTasks(b, job.Independent, src.Tasks)
	if job.Independent {
		checkIndependent(b, ranks, job.Program)
		job.Backend = "none"
	}
	job.Check = decodeCheck(b.Block("check"))
	job.NCCL = library.DecodeNCCL(b.Block("nccl"), job.Backend, job.Check.doubt(b.File.Evaluator))
	job.Allocator = library.DecodeAllocator(b.Block("allocator"))
	job.MPS = decodeMPS(b.Block("mps"), ranks.placement)
	job.Memory = library.DecodeMemory(b.Block("memory"), groupNames(job.Placement.Groups))
	base := Host{Devices: ranks.devices, Workdir: decode.Path(b.Arg("workdir")), Setup: decode.Text(b.Arg("setup"))}
	base.setRanks(ranks.perHost)
	decodeHosts(src, job, b.Block("hosts"), base)
	checkRanks(b.File, job, ranks, base)
	job.Stop = decodeStop(b.Block("stop"))
	job.EarlyExit = decodeEarlyExit(b.Block("early_exit"))
	job.Restart = decodeRestart(b.Block("restart"), job)
	job.Hang = decodeHang(b.Block("hang"), job.Restart != nil)
	job.Progress = decodeProgress(b.Block("progress"))
	job.Observe = decodeObserve(b.Block("observe"))
	job.Logs = decodeLogs(b.Block("logs"), job.worldSize())
	job.Forward, job.forwarded = decodeForward(b, src.Forwarded)
	job.hostEnv = b.File.HostEnv()
	return job
}

var jobNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// jobName is the label; it becomes part of run ids and paths.
func jobName(b *decode.Block) string {
	if !b.Bare && !jobNameForm.MatchString(b.Label) {
		b.File.Error(b.NameAt, "Invalid job name",
			"%q: a job name is at most 63 letters, digits, '-', '_' and '.', and begins with a letter or digit.", b.Label)
	}
	return b.Label
}

// decodeCommand is the argv of every worker: the job file's words, then those after --.
func decodeCommand(a *decode.Arg, after []string) []string {
	if a == nil {
		return nil
	}
	argv, ok := decode.Words(a, "the command")
	switch {
	case !ok:
		return nil
	case a.Wrong():
	case len(argv) == 0 && a.IsEmptyList():
		a.Error("Empty command", "The command needs at least the program: [\"python\", \"train.py\"].")
	case len(argv) > 0 && argv[0] == "":
		elements, _ := a.Elements()
		a.ErrorAt(elements[0].At, "Empty command", "The first word of the command is the program and cannot be empty.")
	}
	return append(argv, after...)
}

// decodePython is a path on each host, or the name of a program there.
func decodePython(a *decode.Arg) string {
	path := decode.Path(a)
	switch {
	case !a.IsSet() || a.Wrong():
	case strings.TrimSpace(path) == "":
		a.Error("Invalid path", "python is empty. Write a path such as \"~/venv/bin/python\", or leave python out to use the command's own.")
	case strings.HasSuffix(path, "/"):
		a.Error("Invalid path", "%s is a folder. Write the interpreter in it, such as %s.", diagnostic.Quoted(path), diagnostic.Quoted(path+"bin/python"))
	case strings.ContainsAny(path, " \t\n") && !strings.Contains(path, "/"):
		a.Error("Invalid path", "python is one program, as no shell reads it: %s has several words. Write its path, such as \"~/venv/bin/python\".", diagnostic.Quoted(path))
	}
	return path
}

// decodePorts is a range of TCP ports.
func decodePorts(a *decode.Arg) PortRange {
	text := decode.Text(a)
	if text == "" {
		return PortRange{}
	}
	ports, err := parsePorts(text)
	if err != nil {
		a.Error("Invalid port range", "%s.", expr.Capital(err.Error()))
	}
	return ports
}

func parsePorts(text string) (PortRange, error) {
	low, high, ok := strings.Cut(text, "-")
	first, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	last, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	switch {
	case !ok || err1 != nil || err2 != nil || first == 0:
		return PortRange{}, fmt.Errorf("write the first and the last port, from 1 to 65535, as in \"20000-29999\"")
	case last < first:
		return PortRange{}, fmt.Errorf("the range runs backwards: write \"%d-%d\"", last, first)
	case last == first:
		return PortRange{}, fmt.Errorf("a run needs at least two ports on the head host, one for the coordinator and one for MASTER_PORT")
	}
	return PortRange{int(first), int(last)}, nil
}

// insteadGrace is how long what runs instead of the command has to end.
const insteadGrace = 2 * time.Second

// instead makes the job one that runs another command in the same place: hosts, ranks,
// devices, setup and environment stay; what is about the command itself does not hold.
func (j *Job) instead(command []string) {
	if len(command) == 0 {
		return
	}
	j.Command, j.Program = command, ""
	j.Restart, j.Progress = nil, Progress{}
	j.Stop = Stop{Grace: insteadGrace, Signal: defaultSignal}
	j.Logs = Logs{}
}

// worldSize is the number of ranks, or of tasks where there are some; 0 where the plan
// decides it.
func (j *Job) worldSize() int {
	if len(j.Tasks) > 0 {
		return len(j.Tasks)
	}
	size := 0
	for _, host := range j.Hosts {
		if host.PerHost == 0 {
			return 0
		}
		size += host.PerHost
	}
	return size
}
