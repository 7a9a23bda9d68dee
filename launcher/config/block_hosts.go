package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
)

var hostsSSHSchema = schema{
	where:  `a hosts "ssh" block`,
	attrs:  []attrSchema{{name: "names", required: true}},
	blocks: []blockSchema{{name: "host", label: `"NAME"`, many: true}},
}

var hostsLocalSchema = schema{
	where: `a hosts "local" block`,
	hint:  `It takes nothing: the job runs on this machine. For other machines use hosts "ssh".`,
}

// LocalName is the name of the one host of hosts "local".
const LocalName = "localhost"

// hosts decodes the hosts block into the job. Each host starts as a copy of base.
func (d *decoder) hosts(job *Job, block *hclsyntax.Block, base Host) {
	if block == nil || len(block.Labels) == 0 {
		return
	}
	kind, at := label(block)
	job.HostsKind = kind
	switch kind {
	case HostsLocal:
		d.content(block.Body, block.DefRange(), hostsLocalSchema)
		base.Name, base.Address, base.Range = LocalName, LocalName, block.DefRange()
		base.Workdir = d.src.localFolder(base.Workdir)
		job.Hosts = []Host{base}
	case HostsSSH:
		job.Hosts = d.sshHosts(block, base)
	default:
		d.unknownHosts(kind, at)
	}
}

// localFolder is a folder of this machine: a relative one starts where the launcher was
// started, as a shell's does. On other hosts there is no such place but the home.
func (s Source) localFolder(workdir string) string {
	if filepath.IsAbs(workdir) || strings.HasPrefix(workdir, "~") || s.Dir == "" {
		return workdir
	}
	return filepath.Join(s.Dir, workdir)
}

func (d *decoder) unknownHosts(kind string, at hcl.Range) {
	advice := ""
	switch near := text.Nearest(kind, []string{HostsLocal, HostsSSH}, 2); {
	case kind == "file" || kind == "slurm":
		advice = fmt.Sprintf(" hosts %q is not there yet.", kind)
	case near != "":
		advice = fmt.Sprintf(" Did you mean %q?", near)
	}
	d.error(at, "Unknown kind of hosts", "There is no hosts %q.%s Write hosts \"ssh\" for machines to be reached by SSH, or hosts \"local\" {} for this machine.", kind, advice)
}

func (d *decoder) sshHosts(block *hclsyntax.Block, base Host) []Host {
	c := d.content(block.Body, block.DefRange(), hostsSSHSchema)
	known := len(d.diags)
	hosts := d.hostNames(c.attrs["names"])
	complete := len(d.diags) == known && len(hosts) > 0
	for i := range hosts {
		hosts[i].setRanks(base.ranks())
		hosts[i].Devices, hosts[i].Workdir, hosts[i].Setup = base.Devices, base.Workdir, base.Setup
	}
	d.overrides(hosts, c.blocks["host"], complete)
	return hosts
}

// hostNames expands names to hosts.
func (d *decoder) hostNames(attr *hclsyntax.Attribute) []Host {
	if attr == nil {
		return nil
	}
	known := len(d.diags)
	elements, ok := d.elements(attr.Expr)
	if !ok {
		d.noHostList(attr)
		return nil
	}
	var hosts []Host
	for _, e := range elements {
		hosts = append(hosts, d.hostsOf(e)...)
		if len(hosts) > maxHosts {
			d.error(e.expr.Range(), "Too many hosts", "There can be at most %d hosts.", maxHosts)
			return nil
		}
	}
	if len(hosts) == 0 && len(d.diags) == known {
		d.error(attr.Expr.Range(), "No hosts", "names is empty. Name at least one host, or use hosts \"local\" {} for this machine.")
	}
	d.checkTwice(hosts)
	nameHosts(hosts)
	return hosts
}

func (d *decoder) noHostList(attr *hclsyntax.Attribute) {
	known := len(d.diags)
	value, ok := d.value(attr.Expr)
	if !ok || len(d.diags) > known {
		return
	}
	example := `["gpu[01-04]"]`
	if value.Type() == cty.String && !value.IsNull() {
		example = "[" + quoted(value.AsString()) + "]"
	}
	d.error(attr.Expr.Range(), "Wrong type", "names is a list of host names, not %s: write %s.", describe(value), example)
}

// hostsOf expands one element of names.
func (d *decoder) hostsOf(e element) []Host {
	if e.value.IsNull() || e.value.Type() != cty.String {
		d.error(e.expr.Range(), "Wrong type", "A host name is text in quotes, not %s.", describe(e.value))
		return nil
	}
	hosts, err := expand(e.value.AsString())
	if err != nil {
		d.error(d.within(e.expr, err.Offset, err.Length), "Invalid host name", "%s.", capital(err.Problem))
		return nil
	}
	for i := range hosts {
		hosts[i].Range = e.expr.Range()
	}
	return hosts
}

// checkTwice reports hosts that are the same by their text.
func (d *decoder) checkTwice(hosts []Host) {
	first := map[string]Host{}
	told := map[hcl.Range]bool{}
	for _, host := range hosts {
		earlier, twice := first[host.key()]
		if !twice {
			first[host.key()] = host
			continue
		}
		if !told[host.Range] {
			d.errorAlso(host.Range, earlier.Range, "Host listed twice",
				"%s is the same host as %s at %s. List each host once; ranks { per_host = ... } says how many ranks it gets.",
				host.Name, earlier.Name, earlier.Range)
		}
		told[host.Range] = true
	}
}

// nameHosts gives hosts that share an address a name with their port.
func nameHosts(hosts []Host) {
	count := map[string]int{}
	for _, host := range hosts {
		count[strings.ToLower(host.Address)]++
	}
	for i := range hosts {
		if hosts[i].Port != 0 && count[strings.ToLower(hosts[i].Address)] > 1 {
			hosts[i].Name = withPort(hosts[i].Address, hosts[i].Port)
		}
	}
}

// overrides applies host blocks. complete is false where names had errors: a
// block for a host that is not there is then no error.
func (d *decoder) overrides(hosts []Host, blocks []*hclsyntax.Block, complete bool) {
	seen := map[int]*hclsyntax.Block{}
	index := indexHosts(hosts)
	for _, block := range blocks {
		if len(block.Labels) == 0 {
			continue
		}
		name, at := label(block)
		i, found := index[strings.ToLower(name)]
		switch {
		case !found && complete:
			d.unknownHost(name, at, hosts)
		case found && seen[i] != nil:
			d.errorAlso(at, seen[i].LabelRanges[0], "Repeated block",
				"There can be one host block for %s; the first is at %s.", hosts[i].Name, seen[i].LabelRanges[0])
		}
		spare := Host{}
		target := &spare
		if found && seen[i] == nil {
			seen[i] = block
			target = &hosts[i]
		}
		d.override(target, block)
	}
}

// indexHosts finds hosts by what a label may call them, in lower case: the name,
// or as names has it, with or without the user.
func indexHosts(hosts []Host) map[string]int {
	index := map[string]int{}
	for i, host := range hosts {
		if host.Port != 0 {
			index[strings.ToLower(withPort(host.Address, host.Port))] = i
		}
		index[strings.ToLower(host.written)] = i
		index[strings.ToLower(host.Name)] = i
	}
	return index
}

func (d *decoder) unknownHost(name string, at hcl.Range, hosts []Host) {
	var names []string
	if len(d.diags) < maxPrinted { // a slip is looked for among all hosts
		for _, host := range hosts {
			names = append(names, host.Name)
		}
	}
	advice := ""
	switch near := text.Nearest(name, names, 2); {
	case strings.ContainsAny(name, "[,"):
		advice = " A host block is for one host: write one block for each."
	case near != "":
		advice = fmt.Sprintf(" Did you mean %q?", near)
	case len(names) > 0 && len(names) <= 8:
		advice = " There are " + strings.Join(names, ", ") + "."
	}
	d.error(at, "Unknown host", "names has no host %q.%s", name, advice)
}
