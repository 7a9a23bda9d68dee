package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Distances between GPUs or to a network device.
var (
	// paths are NCCL's, near ones first (PATH_* in src/graph/topo.h). The documentation has some of them only.
	paths = []string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}
	// oldLevels are distances as numbers, of the time before words (src/graph/paths.cc). There is none for NVL; what is
	// beyond is SYS.
	oldLevels = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}
)

// AllowsP2P reports whether NCCL may have GPUs reach into each other's memory by a way as nvidia-smi topo names it,
// with these values of NCCL_P2P_DISABLE and NCCL_P2P_LEVEL. A level that NCCL does not know leaves it to NCCL.
func AllowsP2P(way, disable, level string) bool {
	if off := readNumber(disable, 0); off.n == 1 && !off.huge {
		return false
	}
	if n := readNumber(level, 0); !n.none && !n.huge && strings.TrimSpace(n.rest) == "" {
		level = oldLevels[min(max(0, n.n), int64(len(oldLevels)-1))]
	}
	if way == "NODE" { // which NCCL does not tell from it
		way = "PHB"
	}
	farthest := slices.Index(paths, level)
	return farthest < 0 || slices.Index(paths, way) <= farthest
}

// misreadLevel is what goes wrong with a distance.
func (v Variable) misreadLevel(value string) []Finding {
	if slices.Contains(paths, value) {
		return nil
	}
	if value[0] >= '0' && value[0] <= '9' {
		level := oldLevels[min(int64(len(oldLevels)-1), readNumber(value, 0).n)]
		return v.found(CodeLevel, value, "write "+level, "numbers are discouraged, as their meaning changes: this one is %s, and none is NVL", level)
	}
	fix := "write one of " + strings.Join(v.Words, ", ")
	if near := foldedWord(value, v.Words); near != "" {
		fix = fmt.Sprintf("write %s, not %s", near, value)
	} else if strings.EqualFold(value, "NVLINK") && slices.Contains(v.Words, "NVL") {
		fix = "write NVL"
	}
	return v.found(CodeWord, value, fix, "NCCL knows no such distance, and ignores it without a word")
}

// foldedWord is the word that text is in another case, "" where there is none.
func foldedWord(text string, words []string) string {
	for _, word := range words {
		if strings.EqualFold(text, word) {
			return word
		}
	}
	return ""
}

func (v Variable) misreadWord(word string, version Version) []Finding {
	who, release := v.reader(version)
	near := foldedWord(word, v.Words)
	what := who + " ignores it"
	if v.Torch {
		what = "torch stops with an error"
	}
	switch {
	case near == "":
		return v.found(CodeWord, word, "write one of "+strings.Join(v.Words, ", "), "%s knows no such word, and %s", v.Name, what)
	case near != word && v.Kind == ExactWord:
		return v.found(CodeWord, word, fmt.Sprintf("write %s, not %s", near, word), "capital and small letters differ here, and %s", what)
	case release.before(v.WordSince[near]):
		return v.found(CodeVersion, word, "use another word, or a newer "+who, "%s %s does not know it; it came with %s", who, release, v.WordSince[near])
	}
	return nil
}

// functionLists is the release from which NCCL_ALGO and NCCL_PROTO have lists per function, wrong words are errors and
// ring is no fallback.
var functionLists = Release{2, 24, 0}

// misreadAlgorithms is what goes wrong with NCCL_ALGO and NCCL_PROTO. Their words may be in any case (parseList in
// src/graph/tuning.cc).
func (v Variable) misreadAlgorithms(value string, version Version) []Finding {
	if version.NCCL.before(functionLists) && strings.ContainsAny(value, ";:") {
		return v.found(CodeVersion, value, "write one list for all functions", "NCCL %s knows no lists per function; they came with %s", version.NCCL, functionLists)
	}
	var found []Finding
	for entry := range strings.SplitSeq(value, ";") {
		function, list, perFunction := strings.Cut(entry, ":")
		if !perFunction {
			function, list = "", entry
		}
		found = append(found, v.misreadList(function, list, version)...)
	}
	return found
}

// misreadList is a list for one function, "" for all that have none.
func (v Variable) misreadList(function, list string, version Version) []Finding {
	rest, without := strings.CutPrefix(list, "^")
	words := strings.Split(rest, ",")
	var found []Finding
	for _, word := range words {
		found = append(found, v.misreadAlgorithm(word, version)...)
	}
	switch {
	case len(found) > 0 || without:
	case v.Name == "NCCL_PROTO" && foldedWord("LL128", words) != "":
		return v.found(CodeCorrupt, list, "leave NCCL_PROTO out: NCCL uses LL128 by itself where it is safe",
			"LL128 is then used where the platform does not support it too, which can corrupt data")
	case v.Name == "NCCL_ALGO" && function == "" && version.NCCL.since(functionLists) && foldedWord("ring", words) == "":
		return v.found(CodeAlgorithm, list, fmt.Sprintf("add ring, or say for which function: allreduce:%s", list),
			"since NCCL %s ring is no silent fallback, and functions for which none of these works fail", functionLists)
	}
	return found
}

func (v Variable) misreadAlgorithm(word string, version Version) []Finding {
	trimmed := strings.TrimSpace(word)
	near := foldedWord(trimmed, v.Words)
	switch {
	case near != "" && word != trimmed:
		return v.found(CodeList, word, "write the list without spaces", "NCCL takes a space as part of the word")
	case near == "":
		return v.found(CodeWord, word, "write some of "+strings.Join(v.Words, ", "),
			"NCCL knows no such word: since %s it fails, before that it ignores it", functionLists)
	}
	return v.misreadWord(word, version)
}

// maxAdapters is how many InfiniBand devices NCCL takes.
const maxAdapters = 32

// misreadNames is what goes wrong with names of interfaces or InfiniBand devices.
func (v Variable) misreadNames(value string, version Version) []Finding {
	list := ParseNames(value)
	for _, name := range list.Names {
		switch {
		case strings.ContainsAny(name, " \t"):
			return v.found(CodeList, value, "write the list without spaces", "NCCL takes a space as part of the name")
		case strings.HasPrefix(name, "="):
			return v.found(CodeList, value, "write one = before the first name", "= counts once, at the beginning, for all names")
		case strings.HasPrefix(name, "^"):
			return v.found(CodeList, value, "write one ^ before the first name, and = after it", "^ counts once, at the beginning, for all names")
		}
	}
	if v.Kind != Adapters {
		return nil
	}
	if len(list.Names) > maxAdapters {
		return v.found(CodeList, value, "name fewer", "NCCL takes %d devices at most", maxAdapters)
	}
	for _, entry := range list.Names {
		name, fields, _ := strings.Cut(entry, ":")
		if rails := (Release{2, 30, 0}); strings.Contains(fields, ":") && version.NCCL.before(rails) {
			return v.found(CodeVersion, value, "write names and ports only", "NCCL %s knows no rails and planes; they came with %s", version.NCCL, rails)
		}
		if !list.Exact && endsInNumber(name) {
			fix := "write " + Names{Without: list.Without, Exact: true, Names: list.Names}.String()
			return v.found(CodePrefix, value, fix, "without = each name is the beginning of one, and %s takes %s0 to %s9 too", name, name, name)
		}
	}
	return nil
}

// endsInNumber is whether a device's name ends in its number among others, so that longer numbers begin with it. 0 does
// not begin any, and the digits of mlx5 are its kind's.
func endsInNumber(name string) bool {
	kind := strings.TrimRight(name, "0123456789")
	n, err := strconv.Atoi(name[len(kind):])
	return err == nil && n > 0 && kind != "mlx"
}

// Names is a list of interfaces or devices as NCCL reads it.
type Names struct {
	Without bool // those that are not to be used
	Exact   bool // else each name is the beginning of one
	Names   []string
}

// ParseNames reads a list such as "=eth0,eth1" or "^docker".
func ParseNames(text string) (list Names) {
	text, list.Without = strings.CutPrefix(text, "^")
	text, list.Exact = strings.CutPrefix(text, "=")
	list.Names = strings.Split(text, ",")
	return list
}

func (n Names) String() string {
	text := strings.Join(n.Names, ",")
	if n.Exact {
		text = "=" + text
	}
	if n.Without {
		text = "^" + text
	}
	return text
}

// Takes is whether NCCL would use a device of that name. Ports and what else follows a colon are left out.
func (n Names) Takes(device string) bool {
	named := slices.ContainsFunc(n.Names, func(entry string) bool {
		name, _, _ := strings.Cut(entry, ":")
		if n.Exact {
			return name == device
		}
		return strings.HasPrefix(device, name)
	})
	return named != n.Without
}
