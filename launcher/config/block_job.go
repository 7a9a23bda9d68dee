package config

import (
	"fmt"
	"regexp"
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
		{name: "lease"},
		{name: "ports"},
	},
	blocks: []blockSchema{
		{name: "hosts", label: `"ssh"`, required: true},
		{name: "ranks"},
		{name: "stop"},
		{name: "early_exit"},
		{name: "logs"},
	},
}

const defaultLease = 30 * time.Second

// job decodes a job block.
func (d *decoder) job(block *hclsyntax.Block) *Job {
	c := d.content(block.Body, block.DefRange(), jobSchema)
	job := &Job{
		Name:    d.jobName(block),
		Command: d.command(c.attrs["command"]),
		Lease:   d.duration(c.attrs["lease"], defaultLease, time.Second, time.Hour),
		Ports:   d.ports(c.attrs["ports"]),
		env:     d.envExpr(c.attrs["env"]),
		scope:   d.scope,
	}
	ranks := d.ranks(first(c.blocks["ranks"]))
	job.Backend = ranks.backend
	d.hosts(job, first(c.blocks["hosts"]), Host{
		PerHost: ranks.perHost,
		Workdir: d.workdir(c.attrs["workdir"]),
		Setup:   d.string(c.attrs["setup"]),
	})
	job.Stop = d.stop(first(c.blocks["stop"]))
	job.EarlyExit = d.earlyExit(first(c.blocks["early_exit"]))
	job.Logs = d.logs(first(c.blocks["logs"]), job.worldSize())
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
		d.noCommandList(attr)
		return nil
	}
	var argv []string
	for _, word := range words {
		argv = append(argv, d.word(word))
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

// noCommandList reports a command that is no list.
func (d *decoder) noCommandList(attr *hclsyntax.Attribute) {
	known := len(d.diags)
	value, ok := d.value(attr.Expr)
	switch {
	case !ok || len(d.diags) > known:
	case value.IsNull():
		d.error(attr.Expr.Range(), "Wrong type", "command is a list of words, not null.")
	case value.Type() == cty.String:
		d.error(attr.Expr.Range(), "Wrong type",
			"command is a list of words, as no shell reads it: %s. For a shell write [\"bash\", \"-c\", %s].",
			quotedWords(value.AsString()), quoted(value.AsString()))
	default:
		d.error(attr.Expr.Range(), "Wrong type", "command is a list of words such as [\"python\", \"train.py\"], not %s.", describe(value))
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

// word is one word of the command.
func (d *decoder) word(e element) string {
	text, ok := d.scope.scalar(e.expr, e.value)
	switch {
	case e.value.IsNull():
		d.error(e.expr.Range(), "Wrong type", "A word of the command cannot be null: write \"null\" for the text, or leave it out.")
	case !ok:
		d.error(e.expr.Range(), "Wrong type",
			"A word of the command is text, a number, true or false, not %s: use jsonencode(...) to pass it as one word, concat([...], ...) to insert its elements.", describe(e.value))
	case len(text) >= maxArgument:
		d.error(e.expr.Range(), "Value too long", "A word of the command has %d bytes; Linux takes at most %d. Pass it in a file.", len(text), maxArgument-1)
	case strings.ContainsRune(text, 0):
		d.error(e.expr.Range(), "NUL in a string", "A word of the command holds a NUL character, which no program can be given.")
	}
	return text
}

// workdir is a path on each host.
func (d *decoder) workdir(attr *hclsyntax.Attribute) string {
	path := d.string(attr)
	switch {
	case strings.HasPrefix(path, "~") && path != "~" && !strings.HasPrefix(path, "~/"):
		d.error(attr.Expr.Range(), "Invalid path", "Only ~/ (your own home on each host) is known; write another user's home in full.")
	case strings.HasPrefix(path, "$"):
		d.warn(attr.Expr.Range(), "Variable in a path", "No shell reads workdir, so %q is the name of a folder. Write ~/ for your home.", path)
	}
	return path
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
