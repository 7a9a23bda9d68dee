package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

var jobSchema = schema{
	where: "a job block",
	attrs: []attrSchema{
		{name: "command", required: true},
		{name: "workdir"},
		{name: "setup"},
		{name: "env"},
		{name: "forward"},
		{name: "lease"},
		{name: "ports"},
		{name: "python"},
		{name: "mode"},
		{name: "tasks"},
		{name: "tasks_file"},
		{name: "program"},
	},
	blocks: []blockSchema{
		{name: "hosts", label: `"ssh"`, required: true, missing: `hosts "local" {} for this machine, or hosts "ssh" { names = [...] }`},
		{name: "ranks"},
		{name: "nccl"},
		{name: "allocator"},
		{name: "mps"},
		{name: "memory"},
		{name: "plugin", label: `"NAME"`},
		{name: "stop"},
		{name: "early_exit"},
		{name: "hang"},
		{name: "restart"},
		{name: "progress"},
		{name: "observe"},
		{name: "check"},
		{name: "logs"},
	},
	elsewhere: torchrunWords,
}

// torchrunWords says how what torchrun's users know is written here: its flags, and
// what its documentation calls things.
var torchrunWords = map[string]string{
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

// job decodes a job block.
func (d *decoder) job(block *hclsyntax.Block) *Job {
	c := d.content(block.Body, block.DefRange(), jobSchema)
	d.program = d.oneOf(c.attrs["program"], "", []string{ProgramTorch, ProgramJAX})
	job := &Job{
		Program: d.program,
		Name:    d.jobName(block),
		Command: d.command(c.attrs["command"]),
		Lease:   d.duration(c.attrs["lease"], defaultLease, time.Second, time.Hour),
		Ports:   d.ports(c.attrs["ports"]),
		Python:  d.python(c.attrs["python"]),
		Plugin:  d.plugin(first(c.blocks["plugin"])),
		env:     d.envExpr(c.attrs["env"]),
		scope:   d.scope,
	}
	ranks := d.ranks(first(c.blocks["ranks"]))
	job.Backend, job.Placement = ranks.backend, ranks.placement
	job.Independent = d.oneOf(c.attrs["mode"], modeDistributed, modes) == modeIndependent
	job.Tasks = d.tasks(c, job.Independent)
	if job.Independent {
		d.checkIndependent(c, ranks)
		job.Backend, ranks.backend = "none", "none"
	}
	job.Check = d.check(first(c.blocks["check"]))
	d.policy = job.Check
	job.NCCL = d.nccl(first(c.blocks["nccl"]), ranks.backend)
	job.Allocator = d.allocator(first(c.blocks["allocator"]))
	job.MPS = d.mps(first(c.blocks["mps"]), ranks.placement)
	job.Memory = d.memory(first(c.blocks["memory"]), job.Placement.Groups)
	base := Host{
		Devices: ranks.devices,
		Workdir: d.path(c.attrs["workdir"]),
		Setup:   d.string(c.attrs["setup"]),
	}
	base.setRanks(ranks.perHost)
	d.hosts(job, first(c.blocks["hosts"]), base)
	d.checkRanks(job, ranks, base)
	job.Stop = d.stop(first(c.blocks["stop"]))
	job.EarlyExit = d.earlyExit(first(c.blocks["early_exit"]))
	job.Restart = d.restart(first(c.blocks["restart"]), job, ranks.backend)
	job.Hang = d.hang(first(c.blocks["hang"]), len(c.blocks["restart"]) > 0)
	job.Progress = d.progress(first(c.blocks["progress"]))
	job.Observe = d.observe(first(c.blocks["observe"]))
	job.Logs = d.logs(first(c.blocks["logs"]), job.worldSize())
	job.Forward, job.forwarded = d.forward(c.attrs["forward"])
	job.hostEnv = slices.Sorted(maps.Keys(d.hostEnv))
	return job
}

func first(blocks []*hclsyntax.Block) *hclsyntax.Block {
	if len(blocks) == 0 {
		return nil
	}
	return blocks[0]
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// jobName is the label; it becomes part of run ids and paths.
func (d *decoder) jobName(block *hclsyntax.Block) string {
	name, at := label(block)
	if len(block.Labels) > 0 && !jobName.MatchString(name) {
		d.error(at, "Invalid job name",
			"%q: a job name is at most 63 letters, digits, '-', '_' and '.', and begins with a letter or digit.", name)
	}
	return name
}

// command is the argv of every worker: the job file's words, then those after --.
func (d *decoder) command(attr *hclsyntax.Attribute) []string {
	if attr == nil {
		return nil
	}
	known := len(d.diags)
	words, ok := d.elements(attr.Expr)
	if !ok {
		d.noWordList(attr)
		return nil
	}
	var argv []string
	for _, word := range words {
		argv = append(argv, d.word(word, "the command"))
	}
	if len(argv) == 0 && len(d.diags) == known && isEmptyList(attr.Expr) {
		d.error(attr.Expr.Range(), "Empty command", "The command needs at least the program: [\"python\", \"train.py\"].")
	}
	if len(argv) > 0 && argv[0] == "" && len(d.diags) == known {
		d.error(words[0].expr.Range(), "Empty command", "The first word of the command is the program and cannot be empty.")
	}
	return append(argv, d.src.Args...)
}

func isEmptyList(expr hclsyntax.Expression) bool {
	tuple, ok := unwrap(expr).(*hclsyntax.TupleConsExpr)
	return !ok || len(tuple.Exprs) == 0
}

// noWordList reports words of a program that are no list.
func (d *decoder) noWordList(attr *hclsyntax.Attribute) {
	known := len(d.diags)
	value, ok := d.value(attr.Expr)
	switch {
	case !ok || len(d.diags) > known:
	case value.IsNull():
		d.error(attr.Expr.Range(), "Wrong type", "%s is a list of words, not null.", attr.Name)
	case value.Type() == cty.String && attr.Name != "command":
		d.error(attr.Expr.Range(), "Wrong type", "%s is a list of words, as no shell reads it: write [%s].", attr.Name, quoted(value.AsString()))
	case value.Type() == cty.String:
		d.error(attr.Expr.Range(), "Wrong type",
			"command is a list of words, as no shell reads it: %s. For a shell write [\"bash\", \"-c\", %s].",
			quotedWords(value.AsString()), quoted(value.AsString()))
	default:
		d.error(attr.Expr.Range(), "Wrong type", "%s is a list of words such as [\"python\", \"train.py\"], not %s.", attr.Name, describe(value))
	}
}

func quotedWords(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 || len(words) > 8 || strings.ContainsAny(text, "'\"\\$`|&;<>()*?") {
		return `write ["python", "train.py"]`
	}
	for i, word := range words {
		words[i] = quoted(word)
	}
	return "write [" + strings.Join(words, ", ") + "]"
}

func quoted(text string) string {
	if len(text) > 60 {
		return `"..."`
	}
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(text))
}

// maxArgument is what Linux takes as one argument or variable, with the NUL at its
// end: MAX_ARG_STRLEN.
const maxArgument = 128 << 10

// word is one word of the command, or of what else is given to a program.
func (d *decoder) word(e element, of string) string {
	text, ok := d.scope.scalar(e.expr, e.value)
	switch {
	case e.value.IsNull():
		d.error(e.expr.Range(), "Wrong type", "A word of %s cannot be null: write \"null\" for the text, or leave it out.", of)
	case !ok:
		d.error(e.expr.Range(), "Wrong type",
			"A word of %s is text, a number, true or false, not %s: use jsonencode(...) to pass it as one word, concat([...], ...) to insert its elements.", of, describe(e.value))
	case len(text) >= maxArgument:
		d.error(e.expr.Range(), "Value too long", "A word of %s has %d bytes; Linux takes at most %d. Pass it in a file.", of, len(text), maxArgument-1)
	case strings.ContainsRune(text, 0):
		d.error(e.expr.Range(), "NUL in a string", "A word of %s holds a NUL character, which no program can be given.", of)
	}
	return text
}

// ports is a range of TCP ports.
func (d *decoder) ports(attr *hclsyntax.Attribute) PortRange {
	text := d.string(attr)
	if text == "" {
		return PortRange{}
	}
	ports, err := parsePorts(text)
	if err != nil {
		d.error(attr.Expr.Range(), "Invalid port range", "%s.", capital(err.Error()))
	}
	return ports
}

func parsePorts(text string) (PortRange, error) {
	low, high, ok := strings.Cut(text, "-")
	firstPort, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	lastPort, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	switch {
	case !ok || err1 != nil || err2 != nil || firstPort == 0:
		return PortRange{}, fmt.Errorf("write the first and the last port, from 1 to 65535, as in \"20000-29999\"")
	case lastPort < firstPort:
		return PortRange{}, fmt.Errorf("the range runs backwards: write \"%d-%d\"", lastPort, firstPort)
	case lastPort == firstPort:
		return PortRange{}, fmt.Errorf("a run needs at least two ports on the head host, one for the coordinator and one for MASTER_PORT")
	}
	return PortRange{int(firstPort), int(lastPort)}, nil
}
