package plans

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/view/terminal"

	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
	"github.com/muster-dev/muster/launcher/plural"
)

// Plan writes a plan: a table of ranks, the groups with their links, and what to know.
func Plan(s *terminal.Screen, p *plan.Plan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s on %s\ncommand: %s\n\n", p.Job, Workers(p), plural.Of(len(p.Hosts), "host"), commandLine(p.Command))
	rankTable(&b, p)
	taskTable(&b, p)
	b.WriteByte('\n')
	for _, line := range groupLines(p) {
		fmt.Fprintln(&b, line)
	}
	for _, line := range visibilityLines(p) {
		fmt.Fprintln(&b, line)
	}
	for _, line := range mpsLines(p) {
		fmt.Fprintln(&b, line)
	}
	masterLines(&b, p)
	if p.Memory != nil {
		memoryLines(&b, p)
	}
	for _, n := range p.Notes {
		if n.Code == "visibility" { // the line above says it once for all hosts
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", s.Out.Paint("36", "note:"), n.Message)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "%s %s\n", s.Out.Paint("33", "warning:"), w.Message)
	}
	s.Write(&s.Out, []byte(b.String()))
	return nil
}

// rankTable shows a line for each rank. How a rank calls its device and what nvidia-smi
// calls it stand side by side.
func rankTable(w io.Writer, p *plan.Plan) {
	t := terminal.NewTable(w)
	withDevices := false
	for _, h := range p.Hosts {
		withDevices = withDevices || len(h.Devices) > 0
	}
	if !withDevices {
		fmt.Fprintln(t, placeWord(p)+"\tHOST\tLOCAL RANK\tTHREADS\tNIC")
		for _, r := range p.Ranks {
			fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\n", r.Rank, p.Hosts[r.Host].Name, r.Local, p.Threads(r.Rank), terminal.OrDash(r.NIC))
		}
		_ = t.Flush() // into memory
		return
	}
	fmt.Fprintln(t, placeWord(p)+"\tHOST\tLOCAL RANK\tSEES IT AS\tGPU\tUUID\tPCI\tNUMA\tCPUS\tTHREADS\tNIC")
	for _, r := range p.Ranks {
		cells := []string{
			strconv.Itoa(r.Rank), p.Hosts[r.Host].Name, strconv.Itoa(r.Local), "-", "-", "-", "-", "-", "any",
			strconv.Itoa(p.Threads(r.Rank)), terminal.OrDash(r.NIC),
		}
		if d := r.Device; d != nil {
			cells[3], cells[4], cells[5], cells[6] = "cuda:"+strconv.Itoa(p.Seen(r.Rank)), deviceNumber(*d), shortUUID(d.UUID), terminal.OrDash(d.PCI)
		}
		if r.Node != nil {
			cells[7], cells[8] = strconv.Itoa(*r.Node), text.Ranges(r.CPUs)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush()
}

// placeWord is what a line of the table of ranks is: with tasks it has one after the other.
func placeWord(p *plan.Plan) string {
	if len(p.Tasks) > 0 {
		return "PLACE"
	}
	return "RANK"
}

// taskTable shows a line for each task: the words that its worker is given.
func taskTable(w io.Writer, p *plan.Plan) {
	if len(p.Tasks) == 0 {
		return
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "\nTASK\tWORDS\tFROM")
	for i, task := range p.Tasks {
		fmt.Fprintf(t, "%d\t%s\t%s\n", i, terminal.OrDash(commandLine(task.Words)), task.Source)
	}
	_ = t.Flush()
}

// deviceNumber is the number of a GPU, and of the MIG device on it with its profile.
func deviceNumber(d plan.Device) string {
	if d.IsInstance() {
		return strings.TrimSpace(fmt.Sprintf("%d.mig%d %s", d.Index, d.MIG, d.Profile))
	}
	return strconv.Itoa(d.Index)
}

// shortUUID is the beginning that tells GPUs apart; --json has all of it.
func shortUUID(uuid string) string {
	kind, rest, parted := strings.Cut(uuid, "-")
	if !parted {
		return terminal.OrDash(uuid)
	}
	first, _, _ := strings.Cut(rest, "-")
	return kind + "-" + first
}

// maxGroups is how many groups are shown one by one.
const maxGroups = 16

func groupLines(p *plan.Plan) []string {
	var lines []string
	for at := 0; at < len(p.Groups); {
		name, size, end := p.Groups[at].Name, p.Groups[at].Size, at
		for end < len(p.Groups) && p.Groups[end].Name == name {
			end++
		}
		lines = append(lines, fmt.Sprintf("%s groups of %d: %s", name, size, groupText(p.Groups[at:end])))
		at = end
	}
	return lines
}

func groupText(groups []plan.Group) string {
	var words []string
	if len(groups) <= maxGroups {
		for _, g := range groups {
			words = append(words, fmt.Sprintf("ranks %d-%d by %s", g.First, g.First+g.Size-1, cmp.Or(string(g.Link), "?")))
		}
		return strings.Join(words, ", ")
	}
	counts := map[string]int{}
	var order []string
	for _, g := range groups {
		link := cmp.Or(string(g.Link), "?")
		if counts[link]++; counts[link] == 1 {
			order = append(order, link)
		}
	}
	for _, link := range order {
		words = append(words, fmt.Sprintf("%d by %s", counts[link], link))
	}
	return strings.Join(words, ", ")
}

// visibilityLines say what ranks see, in a line where all hosts agree.
func visibilityLines(p *plan.Plan) []string {
	seen := map[string][]string{}
	var order []string
	for i, h := range p.Hosts {
		if h.Visibility == "" {
			continue
		}
		line := visibilityText(p, i)
		if seen[line] == nil {
			order = append(order, line)
		}
		seen[line] = append(seen[line], h.Name)
	}
	if len(order) < 2 {
		return order
	}
	for i, line := range order {
		order[i] = firstOf(seen[line]) + ": " + line
	}
	return order
}

func visibilityText(p *plan.Plan, host int) string {
	h := p.Hosts[host]
	names, why := environ.DeviceNames(p, host)
	line := fmt.Sprintf("visibility %s (%s), devices by %s", h.Visibility, h.VisibleWhy, names)
	if why != "" {
		line += " (" + why + ")"
	}
	if h.Visibility == "rank" {
		line += "; LOCAL_RANK is 0, MUSTER_LOCAL_RANK the real one"
	}
	return line
}

// maxNames is how many hosts of one line are named.
const maxNames = 8

func firstOf(names []string) string {
	if n := len(names); n > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), n-maxNames)
	}
	return strings.Join(names, ", ")
}

func masterLines(w io.Writer, p *plan.Plan) {
	if p.Independent {
		return
	}
	for i, m := range p.Masters {
		switch {
		case m.Passed != "":
			fmt.Fprintf(w, "not at %s: %s\n", m.Addr, m.Passed)
		case len(p.Hosts) == 1:
			fmt.Fprintf(w, "ranks meet at %s\n", m.Addr)
		case i == 0:
			fmt.Fprintf(w, "ranks meet at %s (%s of %s), once every host is seen to reach it\n", m.Addr, m.NIC, p.Hosts[0].Name)
		default:
			fmt.Fprintf(w, "  otherwise at %s (%s)\n", m.Addr, m.NIC)
		}
	}
}

// commandLine shows argv so that its words can be told apart.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\$`*?;&|<>(){}[]#!~") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(words, " ")
}

// Workers says how many workers there are.
func Workers(p *plan.Plan) string {
	if len(p.Tasks) == 0 {
		return plural.Of(p.WorldSize, "rank")
	}
	return fmt.Sprintf("%s, %d at a time,", plural.Of(len(p.Tasks), "task"), min(len(p.Tasks), p.WorldSize))
}
