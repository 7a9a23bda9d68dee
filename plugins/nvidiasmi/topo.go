package nvidiasmi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Topology is the table of nvidia-smi topo -m.
type Topology struct {
	Header     []int // GPU numbers that the header names
	Rows       []TopologyRow
	NICs       []string // device names, where told, in the order of the columns
	HasNUMA    bool     // the header has these columns
	HasGPUNUMA bool
	Problems   []string // what does not fit
	gpusFit    bool     // no problem is among the cells of the GPUs
}

// TopologyRow is the row of one GPU, its texts as printed. The affinities are those of
// the process that asked (a cpuset cuts them); muster takes them from sysfs instead.
type TopologyRow struct {
	GPU                int
	Cells              []string // one for each GPU of the header
	CPU, NUMA, GPUNUMA string
	Damaged            bool // columns are shifted: the affinities are left out
}

var (
	escapes   = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	gpuColumn = regexp.MustCompile(`^GPU(\d{1,4})`)
	gpuRow    = regexp.MustCompile(`^GPU(\d{1,4})\s`)
	nicLegend = regexp.MustCompile(`^(NIC\d+):\s*(\S+)$`)
	linkCell  = regexp.MustCompile(`^(X|SYS|NODE|PHB|PXB|PIX|SOC|NV[1-9]\d{0,3})$`)
)

// ParseTopology reads the answer of nvidia-smi topo -m. Its error means that there is no
// table; a damaged one is returned with its problems.
func ParseTopology(output []byte) (*Topology, error) {
	var t *Topology
	legend := false
	for line := range strings.Lines(escapes.ReplaceAllString(string(output), "")) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimSpace(line)
		switch {
		case t == nil:
			t = parseHeader(text)
		case strings.HasPrefix(text, "Legend") || strings.HasPrefix(text, "NIC Legend"):
			legend = true
		case legend:
			t.nameNIC(text)
		case gpuRow.MatchString(text):
			t.addRow(strings.TrimLeft(line, " "))
		}
	}
	if t == nil {
		if failures := ParseFailures(output); len(failures) > 0 {
			return nil, failures[0]
		}
		return nil, errors.New("nvidia-smi topo -m shows no table")
	}
	t.check()
	return t, nil
}

// parseHeader reads the names of the columns; nil: this line is no header. The names may
// have lost the tabs between them.
func parseHeader(text string) *Topology {
	names, affinities, found := strings.Cut(text, "CPU Affinity")
	if !found || !gpuColumn.MatchString(text) {
		return nil
	}
	t := &Topology{
		HasNUMA:    strings.Contains(affinities, "NUMA Affinity"),
		HasGPUNUMA: strings.Contains(affinities, "GPU NUMA ID"),
		gpusFit:    true,
	}
	for _, name := range strings.Fields(names) {
		for m := gpuColumn.FindStringSubmatch(name); m != nil; m = gpuColumn.FindStringSubmatch(name) {
			t.Header = append(t.Header, digits(m[1]))
			name = name[len(m[0]):]
		}
		if name != "" {
			t.NICs = append(t.NICs, name)
		}
	}
	return t
}

// nameNIC takes the device name of a column "NIC3" from a line of the legend.
func (t *Topology) nameNIC(text string) {
	if m := nicLegend.FindStringSubmatch(text); m != nil {
		if i := slices.Index(t.NICs, m[1]); i >= 0 {
			t.NICs[i] = m[2]
		}
	}
}

// addRow reads the row of a GPU: its name, a cell for each GPU and NIC, the affinities.
func (t *Topology) addRow(line string) {
	cells := t.split(line)
	row := TopologyRow{GPU: digits(gpuRow.FindStringSubmatch(line)[1])}
	width := len(t.Header) + len(t.NICs)
	row.Cells = cells[min(1, len(cells)):min(1+len(t.Header), len(cells))]
	if bad := slices.IndexFunc(cells[1:min(1+width, len(cells))], isBadCell); bad >= 0 || len(cells) < 1+width {
		row.Damaged = true
		t.Problems = append(t.Problems, fmt.Sprintf("bad cell in GPU%d", row.GPU))
		if len(row.Cells) < len(t.Header) || bad >= 0 && bad < len(t.Header) {
			t.gpusFit = false
		}
	}
	if !row.Damaged {
		t.readAffinities(&row, cells[1+width:])
	}
	t.Rows = append(t.Rows, row)
}

func isBadCell(cell string) bool { return !linkCell.MatchString(cell) }

// split parts a row at its tabs. A row without any was pasted with the tabs expanded:
// they are put back at every eighth column, or, where that does not fit (retyped tables),
// words are cells.
func (t *Topology) split(line string) []string {
	if strings.Contains(line, "\t") {
		cells := strings.Split(line, "\t")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		return cells
	}
	width := 1 + len(t.Header) + len(t.NICs)
	if cells := untab(line); len(cells) >= width && !slices.ContainsFunc(cells[1:width], isBadCell) {
		return cells
	}
	return strings.Fields(line)
}

// untab undoes the expansion of tabs: a cell begins at a multiple of eight, and only the
// mark of a GPU's own column, " X ", one column after.
func untab(line string) []string {
	var cells []string
	for at := 0; at < len(line); {
		end := at
		if strings.HasPrefix(line[at:], " X") {
			end += 2
		}
		for end < len(line) && line[end] != ' ' {
			end++
		}
		cells = append(cells, strings.TrimSpace(line[at:end]))
		at = (end/8 + 1) * 8
	}
	return cells
}

// readAffinities reads what is behind the cells: CPU, NUMA, an empty field, GPU NUMA. A
// NUMA value of N/A has one more empty field before it. Retyped rows have the values only.
func (t *Topology) readAffinities(row *TopologyRow, fields []string) {
	columns := 1
	if t.HasNUMA {
		columns++
	}
	if t.HasGPUNUMA {
		columns++
	}
	at := func(i int) string {
		if i < len(fields) {
			return fields[i]
		}
		return ""
	}
	row.CPU = at(0)
	next := 1
	if t.HasNUMA {
		if at(1) == "" && at(2) == "N/A" && (!t.HasGPUNUMA || len(fields) > columns+1) {
			next = 2
		}
		row.NUMA = at(next)
		next++
	}
	if t.HasGPUNUMA {
		if len(fields) > columns {
			next++
		}
		row.GPUNUMA = at(next)
	}
}

// check compares header and rows, and each cell of a pair with the other.
func (t *Topology) check() {
	if len(t.Rows) != len(t.Header) {
		t.fault("header %d GPUs, %d GPU rows", len(t.Header), len(t.Rows))
	}
	if !t.gpusFit {
		return
	}
	for i, row := range t.Rows {
		if row.GPU != t.Header[i] {
			t.fault("row of GPU%d where GPU%d should be", row.GPU, t.Header[i])
			return
		}
		for j, cell := range row.Cells {
			if other := t.Rows[j].Cells[i]; cell != other {
				t.fault("GPU%d to GPU%d is %s, and %s the other way", row.GPU, t.Header[j], cell, other)
				return
			}
			if (cell == "X") != (i == j) {
				t.fault("GPU%d to GPU%d is %s", row.GPU, t.Header[j], cell)
				return
			}
		}
	}
}

// fault notes what makes the links of the GPUs useless.
func (t *Topology) fault(format string, args ...any) {
	t.Problems = append(t.Problems, fmt.Sprintf(format, args...))
	t.gpusFit = false
}

// Links are the ways between the GPUs, in the order of the header. They are trusted only
// as a whole. SOC is the word of old drivers for SYS.
func (t *Topology) Links() ([][]gpu.Link, error) {
	if !t.gpusFit {
		return nil, fmt.Errorf("table of nvidia-smi topo -m is damaged: %s", strings.Join(t.Problems, "; "))
	}
	links := make([][]gpu.Link, len(t.Rows))
	for i, row := range t.Rows {
		for _, cell := range row.Cells {
			if cell == "SOC" {
				cell = "SYS"
			}
			links[i] = append(links[i], gpu.Link(cell))
		}
	}
	return links, nil
}
