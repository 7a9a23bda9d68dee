package nccl

import (
	_ "embed" // for the tables
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// The tables. names.txt are variables that NCCL reads and of which nothing else is known here: those of the user guide,
// and the names within NCCL 2.30.7's library. Many are for NCCL's own makers.
var (
	//go:embed variables.csv
	variablesCSV string
	//go:embed attributes.csv
	attributesCSV string
	//go:embed names.txt
	namesText string
)

// newestKnown is the release of NCCL up to which names are known.
var newestKnown = Release{2, 30, 7}

// buildNames are not read by NCCL: images and build systems use them to find it (the Dockerfiles of nvidia/cuda,
// CMake's modules for NCCL).
var buildNames = set(`NCCL_VERSION NCCL_HOME NCCL_ROOT NCCL_ROOT_DIR NCCL_DIR NCCL_LIB_DIR NCCL_LIBRARY NCCL_LIBRARIES
NCCL_INCLUDE_DIR NCCL_INCLUDE_DIRS`)

// pluginPrefixes are families that network plugins read, such as Google's GPUDirect-TCPX and FasTrak and NVIDIA's UCX
// plugin.
var pluginPrefixes = []string{"NCCL_GPUDIRECTTCPX_", "NCCL_FASTRAK_", "NCCL_UCX_", "NCCL_TESTS_"}

// folkNames are given by many pages and read by nobody, with what to do instead.
var folkNames = map[string]string{
	"NCCL_TIMEOUT":     "give the time to torch.distributed.init_process_group(timeout=...); no variable sets it",
	"NCCL_BUFFER_SIZE": "write NCCL_BUFFSIZE",
}

// Kind is how a variable's text is read.
type Kind string

// Kinds, as the table has them.
const (
	Text       Kind = "text"       // anything
	Switch     Kind = "switch"     // 0 or 1
	Number     Kind = "number"     // a whole number
	Bytes      Kind = "bytes"      // a whole number of bytes, without unit
	Channels   Kind = "channels"   // a number of channels, whose limit follows from the release
	Level      Kind = "level"      // a distance between devices
	Word       Kind = "word"       // one of Words
	ExactWord  Kind = "exact word" // the same, in this case only
	WordList   Kind = "words"      // several of Words with "," between; "^" takes out
	Algorithms Kind = "algorithms" // words per function: "ring;allreduce:tree"; "^" takes out
	Interfaces Kind = "interfaces" // prefixes of network interfaces; "=" exact, "^" takes out
	Adapters   Kind = "adapters"   // the same of InfiniBand devices, with ports
	File       Kind = "file"       // a path
)

// Variable is a variable that NCCL or torch reads.
type Variable struct {
	Name      string
	Torch     bool // torch reads it, not NCCL: by other rules
	Kind      Kind
	Low, High int64 // of numbers; both 0: no limit
	Words     []string
	WordSince map[string]Release // words that older releases do not know

	Since  Release // the first that reads it, where that is known
	Until  Release // the first that does not any more; unset: still read
	Former string  // its name before Since
	// Instead is its name now, from the release Deprecated on.
	Instead    string
	Deprecated Release

	Note string // what it means or what goes wrong, in a sentence without a full stop
}

// tables are what is embedded, read.
type tables struct {
	variables map[string]Variable
	others    map[string]bool
}

var table = sync.OnceValue(func() tables {
	t := tables{variables: map[string]Variable{}, others: set(namesText)}
	for row := range rows(variablesCSV) {
		v := Variable{
			Name: row["name"], Torch: row["reader"] == "torch", Kind: Kind(row["kind"]), Low: number64(row["low"]), High: number64(row["high"]),
			Since: parseRelease(row["since"]), Until: parseRelease(row["until"]), Former: row["former"],
			Instead: row["instead"], Deprecated: parseRelease(row["deprecated"]), Note: row["note"], WordSince: map[string]Release{},
		}
		for word := range strings.SplitSeq(row["words"], ",") {
			if word, since, _ := strings.Cut(word, "@"); word != "" {
				v.Words, v.WordSince[word] = append(v.Words, word), parseRelease(since)
			}
		}
		t.variables[v.Name] = v
	}
	return t
})

// rows reads an embedded table, by the names in its first line. What is embedded has the right form: a test reads it.
func rows(text string) func(yield func(map[string]string) bool) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.Comment, r.LazyQuotes = '|', '#', true
	all, err := r.ReadAll()
	if err != nil {
		panic("nccl: an embedded table: " + err.Error())
	}
	return func(yield func(map[string]string) bool) {
		for _, cells := range all[1:] {
			row := map[string]string{}
			for i, cell := range cells {
				row[all[0][i]] = cell
			}
			if !yield(row) {
				return
			}
		}
	}
}

func number64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // "" is none
	return n
}

func set(text string) map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(text) {
		all[name] = true
	}
	return all
}

// Lookup finds a variable by name.
func Lookup(name string) (Variable, bool) {
	v, ok := table().variables[name]
	return v, ok
}

// Concerns is whether a variable's name is of the families that this package knows.
func Concerns(name string) bool {
	return strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "TORCH_NCCL_") ||
		strings.HasPrefix(name, "TORCH_FR_") || name == "TORCH_DISTRIBUTED_DEBUG"
}

// reader is who reads the variable, and the release of it that was found.
func (v Variable) reader(version Version) (string, Release) {
	if v.Torch {
		return "torch", version.Torch
	}
	return "NCCL", version.NCCL
}

// limits are the smallest and the largest number that the release takes; both 0 for no limit.
func (v Variable) limits(version Version) (low, high int64) {
	switch {
	case v.Kind == Switch:
		return 0, 1
	case v.Kind == Channels && version.NCCL.before(Release{2, 25, 0}):
		return v.Low, 32
	}
	return v.Low, v.High
}

// nearestName is the variable that name is probably a slip of, "" where there is none.
func nearestName(name string) string {
	if _, known := Lookup("TORCH_" + name); known {
		return "TORCH_" + name
	}
	candidates := slices.AppendSeq(slices.Collect(maps.Keys(table().variables)), maps.Keys(table().others))
	slices.Sort(candidates)
	return text.Nearest(name, candidates, 2)
}
