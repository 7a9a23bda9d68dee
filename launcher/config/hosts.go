package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/config/expr"
	"github.com/muster-dev/muster/launcher/config/hostlist"
	"github.com/muster-dev/muster/launcher/internal/text"
)

var (
	hostsSSHSchema = decode.Schema{
		Where:    `a hosts "ssh" block`,
		Args:     []string{"names"},
		Blocks:   []decode.BlockType{{Name: "host", Label: `"NAME"`, Many: true}},
		Required: []string{"names"},
	}
	hostsLocalSchema = decode.Schema{
		Where: `a hosts "local" block`,
		Hint:  `It takes nothing: the job runs on this machine. For other machines use hosts "ssh".`,
	}
	hostSchema = decode.Schema{
		Where:  "a host block",
		Args:   []string{"user", "port", "workdir", "setup", "env"},
		Blocks: []decode.BlockType{{Name: "ranks"}},
	}
)

// LocalName is the name of the one host of hosts "local".
const LocalName = "localhost"

// ParseHosts expands entries of a host list to hosts, in order, and refuses a host that is
// listed twice. It is for host lists outside job files.
func ParseHosts(entries ...string) ([]Host, error) {
	var hosts []Host
	seen := map[string]bool{}
	for _, entry := range entries {
		more, err := hostlist.Expand(entry)
		if err != nil {
			return nil, err
		}
		for _, host := range more {
			if seen[host.Key()] {
				return nil, fmt.Errorf("host %q is listed twice", host.Address)
			}
			seen[host.Key()] = true
			hosts = append(hosts, hostOf(host))
		}
	}
	nameHosts(hosts)
	return hosts, nil
}

func hostOf(h hostlist.Host) Host {
	return Host{Name: h.Address, Address: h.Address, User: h.User, Port: h.Port, listed: h}
}

// decodeHosts decodes the hosts block into the job. Each host starts as a copy of base.
func decodeHosts(src Source, job *Job, b *decode.Block, base Host) {
	if b == nil || b.Bare {
		return
	}
	job.HostsKind = b.Label
	switch b.Label {
	case HostsLocal:
		b.Open(hostsLocalSchema)
		base.Name, base.Address, base.Range = LocalName, LocalName, b.At
		base.Workdir = src.localFolder(base.Workdir)
		job.Hosts = []Host{base}
	case HostsSSH:
		job.Hosts = decodeSSHHosts(b, base)
	default:
		advice := text.DidYouMean(b.Label, []string{HostsLocal, HostsSSH})
		if b.Label == "file" || b.Label == "slurm" {
			advice = fmt.Sprintf(" hosts %q is not there yet.", b.Label)
		}
		b.File.Error(b.NameAt, "Unknown kind of hosts", "There is no hosts %q.%s Write hosts \"ssh\" for machines to be reached by SSH, or hosts \"local\" {} for this machine.", b.Label, advice)
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

func decodeSSHHosts(b *decode.Block, base Host) []Host {
	b.Open(hostsSSHSchema)
	hosts, complete := decodeHostNames(b.File, b.Arg("names"))
	for i := range hosts {
		hosts[i].setRanks(base.ranks())
		hosts[i].Devices, hosts[i].Workdir, hosts[i].Setup = base.Devices, base.Workdir, base.Setup
	}
	override(b.File, hosts, b.Blocks("host"), complete)
	return hosts
}

// decodeHostNames expands names to hosts. complete is false where there were errors.
func decodeHostNames(f *decode.File, a *decode.Arg) (hosts []Host, complete bool) {
	if a == nil {
		return nil, false
	}
	known := f.Count()
	elements, ok := a.Elements()
	if !ok && a.Wrong() {
		return nil, false
	}
	if !ok {
		example := `["gpu[01-04]"]`
		if word, isText := a.Word(); isText {
			example = "[" + diagnostic.Quoted(word) + "]"
		}
		a.Error("Wrong type", "names is a list of host names, not %s: write %s.", a.Describe(), example)
		return nil, false
	}
	for _, e := range elements {
		hosts = append(hosts, decodeHostName(e)...)
		if len(hosts) > hostlist.Max {
			e.Error("Too many hosts", "There can be at most %d hosts.", hostlist.Max)
			return nil, false
		}
	}
	if len(hosts) == 0 && f.Count() == known {
		a.Error("No hosts", "names is empty. Name at least one host, or use hosts \"local\" {} for this machine.")
	}
	checkTwice(f, hosts)
	nameHosts(hosts)
	return hosts, f.Count() == known
}

// decodeHostName expands one element of names.
func decodeHostName(e *decode.Arg) (hosts []Host) {
	word, isText := e.Word()
	if _, ok := e.Value(); !ok {
		return nil
	}
	if !isText {
		e.Error("Wrong type", "A host name is text in quotes, not %s.", e.Describe())
		return nil
	}
	listed, err := hostlist.Expand(word)
	if err != nil {
		e.ErrorAt(e.Within(err.Offset, err.Length), "Invalid host name", "%s.", expr.Capital(err.Problem))
	}
	for _, h := range listed {
		host := hostOf(h)
		host.Range = e.At
		hosts = append(hosts, host)
	}
	return hosts
}

// checkTwice reports hosts that are the same by their text.
func checkTwice(f *decode.File, hosts []Host) {
	first := map[string]Host{}
	reported := map[hcl.Range]bool{}
	for _, host := range hosts {
		key := host.listed.Key()
		earlier, twice := first[key]
		if !twice {
			first[key] = host
			continue
		}
		if !reported[host.Range] {
			f.ErrorAlso(host.Range, earlier.Range, "Host listed twice",
				"%s is the same host as %s at %s. List each host once; ranks { per_host = ... } says how many ranks it gets.",
				host.Name, earlier.Name, earlier.Range)
		}
		reported[host.Range] = true
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
			hosts[i].Name = hostlist.WithPort(hosts[i].Address, hosts[i].Port)
		}
	}
}

// override applies host blocks. complete is false where names had errors: a block for a host
// that is not there is then no error.
func override(f *decode.File, hosts []Host, blocks []*decode.Block, complete bool) {
	seen := map[int]*decode.Block{}
	index := indexHosts(hosts)
	for _, b := range blocks {
		i, found := index[strings.ToLower(b.Label)]
		target := &Host{}
		switch {
		case !found && complete && !b.Bare:
			unknownHost(b, hosts)
		case found && seen[i] != nil:
			f.ErrorAlso(b.NameAt, seen[i].NameAt, "Repeated block",
				"There can be one host block for %s; the first is at %s.", hosts[i].Name, seen[i].NameAt)
		case found:
			seen[i], target = b, &hosts[i]
		}
		decodeHost(b, target)
	}
}

// indexHosts finds hosts by what a label may call them, in lower case: the name,
// or as names has it, with or without the user.
func indexHosts(hosts []Host) map[string]int {
	index := map[string]int{}
	for i, host := range hosts {
		if host.Port != 0 {
			index[strings.ToLower(hostlist.WithPort(host.Address, host.Port))] = i
		}
		index[strings.ToLower(host.listed.Written)] = i
		index[strings.ToLower(host.Name)] = i
	}
	return index
}

func unknownHost(b *decode.Block, hosts []Host) {
	var names []string
	if !b.File.Many() { // a slip is looked for among all hosts
		for _, host := range hosts {
			names = append(names, host.Name)
		}
	}
	advice := text.DidYouMean(b.Label, names)
	switch {
	case strings.ContainsAny(b.Label, "[,"):
		advice = " A host block is for one host: write one block for each."
	case advice == "" && len(names) > 0 && len(names) <= 8:
		advice = " There are " + strings.Join(names, ", ") + "."
	}
	b.File.Error(b.NameAt, "Unknown host", "names has no host %q.%s", b.Label, advice)
}

// decodeHost applies a host block to the host it is for. What the block says wins over what
// names says.
func decodeHost(b *decode.Block, host *Host) {
	b.Open(hostSchema)
	if a := b.Arg("user"); a.IsSet() {
		user := decode.Text(a)
		if err := hostlist.CheckUser(user); err != nil {
			a.ErrorAt(a.Within(err.Offset, err.Length), "Invalid user", "%s.", expr.Capital(err.Problem))
		}
		if host.User != "" && user != "" && user != host.User {
			a.Warn("Two users for one host", "names says %s@, this block says %s: this block is used.", host.User, user)
		}
		host.User = user
	}
	if a := b.Arg("port"); a.IsSet() {
		port := decode.Integer(a, 1, 65535)
		if host.Port != 0 && port != 0 && port != host.Port {
			a.Warn("Two ports for one host", "names says :%d, this block says %d: this block is used.", host.Port, port)
		}
		host.Port = port
	}
	if a := b.Arg("workdir"); a.IsSet() {
		host.Workdir = decode.Path(a)
	}
	if a := b.Arg("setup"); a.IsSet() {
		host.Setup = decode.Text(a)
	}
	host.env = decode.EnvExpr(b.Arg("env"))
	decodeHostRanks(b.Block("ranks"), host)
}
