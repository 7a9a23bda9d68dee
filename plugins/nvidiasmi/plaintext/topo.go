package plaintext

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/plugins/gpu"
)

// Topology is the table of nvidia-smi topo -m, as far as it is about GPUs. The affinities in it
// are those of the process that asked (a cpuset cuts them); muster takes them from sysfs instead.
type Topology struct {
	Header   []int // GPU numbers in the header
	Rows     []TopologyRow
	NICs     int      // columns of network devices
	Problems []string // what does not fit
	gpusFit  bool     // no problem is among the cells of the GPUs
}

// TopologyRow is the row of one GPU, with a cell for each GPU in the header.
type TopologyRow struct {
	GPU   int
	Cells []string
}

var (
	escapes   = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	gpuColumn = regexp.MustCompile(`^GPU(\d{1,4})`)
	gpuRow    = regexp.MustCompile(`^GPU(\d{1,4})\s`)
	linkCell  = regexp.MustCompile(`^(X|SYS|NODE|PHB|PXB|PIX|SOC|NV[1-9]\d{0,3})$`)
)

// ParseTopology reads the answer of nvidia-smi topo -m. Its error means that there is no
// table; a damaged one is returned with its problems.
func ParseTopology(output []byte) (*Topology, error) {
	var t *Topology
	for line := range strings.Lines(escapes.ReplaceAllString(string(output), "")) {
		text := strings.TrimSpace(line)
		switch {
		case t == nil:
			t = parseHeader(text)
		case gpuRow.MatchString(text):
			t.addRow(strings.Trim(line, " \r\n"))
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
	names, _, found := strings.Cut(text, "CPU Affinity")
	if !found || !gpuColumn.MatchString(text) {
		return nil
	}
	t := &Topology{gpusFit: true}
	for _, name := range strings.Fields(names) {
		for m := gpuColumn.FindStringSubmatch(name); m != nil; m = gpuColumn.FindStringSubmatch(name) {
			t.Header = append(t.Header, Digits(m[1]))
			name = name[len(m[0]):]
		}
		if name != "" {
			t.NICs++
		}
	}
	return t
}

// addRow reads the row of a GPU: its name, a cell for each GPU and NIC, the affinities.
func (t *Topology) addRow(line string) {
	cells := t.split(line)[1:]
	row := TopologyRow{GPU: Digits(gpuRow.FindStringSubmatch(line)[1]), Cells: cells[:min(len(t.Header), len(cells))]}
	width := len(t.Header) + t.NICs
	if bad := slices.IndexFunc(cells[:min(width, len(cells))], isBadCell); bad >= 0 || len(cells) < width {
		t.Problems = append(t.Problems, fmt.Sprintf("bad cell in GPU%d", row.GPU))
		if len(row.Cells) < len(t.Header) || bad >= 0 && bad < len(t.Header) {
			t.gpusFit = false
		}
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
	width := 1 + len(t.Header) + t.NICs
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

// Links are the links between the GPUs, in the order of the header. They are trusted only
// as a whole. SOC is the name that old drivers have for SYS.
func (t *Topology) Links() ([][]gpu.Link, error) {
	if !t.gpusFit {
		return nil, fmt.Errorf("table of nvidia-smi topo -m is damaged: %s", strings.Join(t.Problems, "; "))
	}
	links := make([][]gpu.Link, len(t.Rows))
	for i, row := range t.Rows {
		for _, cell := range row.Cells {
			links[i] = append(links[i], gpu.Link(strings.Replace(cell, "SOC", "SYS", 1)))
		}
	}
	return links, nil
}
