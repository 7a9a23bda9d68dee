package plaintext

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

// rightTable is what expected.json has of one topology sample.
type rightTable struct {
	Name       string
	Error      string
	GPUs       int
	NICs       int
	HeaderGPUs int `json:"header_gpus"`
	NVLink     []string
	Others     []string `json:"other_links"`
	Islands    [][]int
	Cliques    [][]int
	ANSI       bool
	Warnings   []string
	Truncated  bool
}

func rightTables(t testing.TB) []rightTable {
	var tables []rightTable
	expected(t, "topo/expected.json", &tables)
	return tables
}

func TestEveryTopologySampleIsReadRight(t *testing.T) {
	known := map[string]bool{}
	for _, want := range rightTables(t) {
		known[want.Name] = true
		t.Run(want.Name, func(t *testing.T) {
			got, err := ParseTopology(sample(t, "topo/"+want.Name))
			if want.Error != "" {
				if err == nil {
					t.Fatalf("a table where there is none: %+v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same(t, "GPU rows", len(got.Rows), want.GPUs)
			same(t, "GPUs of the header", len(got.Header), want.HeaderGPUs)
			same(t, "NICs", got.NICs, want.NICs)
			same(t, "problems", got.Problems, want.Warnings)
			same(t, "underlined", bytes.Contains(sample(t, "topo/"+want.Name), []byte("\x1b[4m")), want.ANSI)
			sameLinks(t, got, want)
		})
	}
	for _, path := range samples(t, "topo/*.txt") {
		if !known[filepath.Base(path)] {
			t.Errorf("%s has no right answer", path)
		}
	}
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: %s, want %s", what, g, w)
	}
}

// The maximal cliques are another way to see that each NVLink cell is read right.
func sameLinks(t *testing.T, got *Topology, want rightTable) {
	t.Helper()
	links, err := got.Links()
	if want.Truncated {
		if err == nil {
			t.Error("a truncated table gives links")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	nv, others := map[string]bool{}, map[string]bool{}
	for _, row := range got.Rows {
		for _, cell := range row.Cells {
			if strings.HasPrefix(cell, "NV") {
				nv[cell] = true
			} else if cell != "X" {
				others[cell] = true
			}
		}
	}
	same(t, "NVLinks", slices.Sorted(maps.Keys(nv)), want.NVLink)
	same(t, "other ways", slices.Sorted(maps.Keys(others)), want.Others)
	same(t, "islands", gpu.Islands(links), want.Islands)
	same(t, "cliques", maximalCliques(links), want.Cliques)
	for _, row := range links {
		if slices.Contains(row, "SOC") {
			t.Error("SOC, the old word for SYS, among the links")
		}
	}
}

func maximalCliques(links [][]gpu.Link) [][]int {
	var all [][]int
	for set := 1; set < 1<<len(links); set++ {
		if members := cliqueOf(links, set); members != nil && !extendable(links, set) {
			all = append(all, members)
		}
	}
	slices.SortFunc(all, slices.Compare)
	return all
}

func cliqueOf(links [][]gpu.Link, set int) []int {
	var members []int
	for i := range links {
		if set&(1<<i) == 0 {
			continue
		}
		for _, j := range members {
			if links[i][j].NVLinks() == 0 {
				return nil
			}
		}
		members = append(members, i)
	}
	return members
}

func extendable(links [][]gpu.Link, set int) bool {
	for i := range links {
		if set&(1<<i) == 0 && cliqueOf(links, set|1<<i) != nil {
			return true
		}
	}
	return false
}

func TestLineEndsOfWindowsChangeNothing(t *testing.T) {
	for _, path := range samples(t, "topo/*.txt") {
		text := sample(t, path)
		unix, err := ParseTopology(text)
		windows, err2 := ParseTopology(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
		if (err == nil) != (err2 == nil) || fmt.Sprintf("%+v", unix) != fmt.Sprintf("%+v", windows) {
			t.Errorf("%s: %+v and with CR LF %+v", path, unix, windows)
		}
	}
}

// Each table is made up from a sample by one change.
func TestADamagedTableGivesProblemsAndNoLinks(t *testing.T) {
	ring := string(sample(t, "topo/10-v100-4gpu-nvlink-ring.txt"))
	for name, change := range map[string][2]string{
		"not symmetric":         {"GPU0\t X \tNV2", "GPU0\t X \tNV1"},
		"own cell is no X":      {"GPU1\tNV2\t X ", "GPU1\tNV2\tNV1"},
		"X for another GPU":     {"GPU0\t X \tNV2", "GPU0\t X \t X "},
		"a word nobody knows":   {"NV2\tSYS\t0-19", "NV2\tFOO\t0-19"},
		"NV without a number":   {"GPU0\t X \tNV2", "GPU0\t X \tNV#"},
		"a row twice":           {"GPU1\t", "GPU0\t"},
		"a cell too few":        {"GPU0\t X \t", "GPU0\t X "},
		"rows cut in the midst": {"GPU3\tSYS\tNV1\tNV2\t X \t20-39,60-79\t1", "GPU3\tSYS\tNV1"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(ring, change[0], change[1], 1)
			if changed == ring {
				t.Fatal("the change fits nowhere")
			}
			table, err := ParseTopology([]byte(changed))
			if err != nil {
				t.Fatal(err)
			}
			if links, err := table.Links(); err == nil {
				t.Errorf("links %v", links)
			} else if len(table.Problems) == 0 || !strings.Contains(err.Error(), table.Problems[0]) {
				t.Errorf("error %q, problems %q", err, table.Problems)
			}
		})
	}
}

func TestNoTableIsToldByTheSentenceInItsPlace(t *testing.T) {
	_, err := ParseTopology(sample(t, "topo/49-windows-topo-unsupported-error.txt"))
	if failure, is := errors.AsType[*Failure](err); !is || failure.Class != QueryOption {
		t.Errorf("error %v", err)
	}
	if _, err := ParseTopology(nil); err == nil {
		t.Error("a table in nothing")
	}
}

// A test of 4+4 without cross links: no public table has it. Made from 25 by a block of
// SYS instead of NV4, so that two islands of two are left.
func TestIslandsWithoutCrossLinksAreTwo(t *testing.T) {
	text := string(sample(t, "topo/25-a100-4gpu-nv4-half-numa.txt"))
	text = strings.Replace(text, "GPU0\t X \tNV4\tNV4\tNV4", "GPU0\t X \tNV4\tSYS\tSYS", 1)
	text = strings.Replace(text, "GPU1\tNV4\t X \tNV4\tNV4", "GPU1\tNV4\t X \tSYS\tSYS", 1)
	text = strings.Replace(text, "GPU2\tNV4\tNV4\t X \tNV4", "GPU2\tSYS\tSYS\t X \tNV4", 1)
	text = strings.Replace(text, "GPU3\tNV4\tNV4\tNV4\t X ", "GPU3\tSYS\tSYS\tNV4\t X ", 1)
	table, err := ParseTopology([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	links, err := table.Links()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "islands", gpu.Islands(links), [][]int{{0, 1}, {2, 3}})
}
