package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// oldLevels are distances as numbers, of the time before words (src/graph/paths.cc). There
// is none for NVL; what is beyond is SYS.
var oldLevels = []string{"LOC", "PIX", "PXB", "PHB", "SYS"}

// misreadLevel is what goes wrong with a distance.
func (v Variable) misreadLevel(value string) []Finding {
	if slices.Contains(v.Words, value) || slices.Contains(p2pLevels, value) || slices.Contains(hiddenLevel, value) {
		return nil
	}
	if value[0] >= '0' && value[0] <= '9' {
		n := min(int64(len(oldLevels)-1), readNumber(value, 0).n)
		return []Finding{v.found(CodeLevel, value, "write "+oldLevels[n], "numbers are discouraged, as their meaning changes: this one is %s, and none is NVL", oldLevels[n])}
	}
	fix := "write one of " + strings.Join(v.Words, ", ")
	if near := foldedWord(value, v.Words); near != "" {
		fix = fmt.Sprintf("write %s, not %s", near, value)
	} else if strings.EqualFold(value, "NVLINK") && slices.Contains(v.Words, "NVL") {
		fix = "write NVL"
	}
	return []Finding{v.found(CodeWord, value, fix, "NCCL knows no such distance, and ignores it without a word")}
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

// misreadWords is what goes wrong with words.
func (v Variable) misreadWords(words []string, version Version) []Finding {
	var found []Finding
	for _, word := range words {
		found = append(found, v.misreadWord(strings.TrimPrefix(word, "^"), version)...)
	}
	return found
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
		return []Finding{v.found(CodeWord, word, "write one of "+strings.Join(v.Words, ", "), "%s knows no such word, and %s", v.Name, what)}
	case near != word && v.ExactCase:
		return []Finding{v.found(CodeWord, word, fmt.Sprintf("write %s, not %s", near, word), "capital and small letters differ here, and %s", what)}
	case release.before(v.WordSince[near]):
		return []Finding{v.found(CodeVersion, word, "use another word, or a newer "+who, "%s %s does not know it; it came with %s", who, release, v.WordSince[near])}
	}
	return nil
}

// functionLists is the release from which NCCL_ALGO and NCCL_PROTO have lists per function,
// wrong words are errors and ring is no fallback.
var functionLists = at(24)

// misreadAlgorithms is what goes wrong with NCCL_ALGO and NCCL_PROTO. Their words may be in
// any case (parseList in src/graph/tuning.cc).
func (v Variable) misreadAlgorithms(value string, version Version) []Finding {
	if version.NCCL.before(functionLists) && strings.ContainsAny(value, ";:") {
		return []Finding{v.found(CodeVersion, value, "write one list for all functions", "NCCL %s knows no lists per function; they came with %s", version.NCCL, functionLists)}
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
	without := strings.HasPrefix(list, "^")
	words := strings.Split(strings.TrimPrefix(list, "^"), ",")
	var found []Finding
	for _, word := range words {
		found = append(found, v.misreadAlgorithm(word, version)...)
	}
	switch {
	case len(found) > 0 || without:
	case v.Name == "NCCL_PROTO" && foldedWord("LL128", words) != "":
		found = append(found, v.found(CodeCorrupt, list, "leave NCCL_PROTO out: NCCL uses LL128 by itself where it is safe",
			"LL128 is then used where the platform does not support it too, which can corrupt data"))
	case v.Name == "NCCL_ALGO" && function == "" && version.NCCL.since(functionLists) && foldedWord("ring", words) == "":
		found = append(found, v.found(CodeAlgorithm, list, fmt.Sprintf("add ring, or say for which function: allreduce:%s", list),
			"since NCCL %s ring is no silent fallback, and functions for which none of these works fail", functionLists))
	}
	return found
}

func (v Variable) misreadAlgorithm(word string, version Version) []Finding {
	near := foldedWord(strings.TrimSpace(word), v.Words)
	switch {
	case near != "" && word != strings.TrimSpace(word):
		return []Finding{v.found(CodeList, word, "write the list without spaces", "NCCL takes a space as part of the word")}
	case near == "":
		return []Finding{v.found(CodeWord, word, "write some of "+strings.Join(v.Words, ", "),
			"NCCL knows no such word: since %s it fails, before that it ignores it", functionLists)}
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
			return []Finding{v.found(CodeList, value, "write the list without spaces", "NCCL takes a space as part of the name")}
		case strings.HasPrefix(name, "="):
			return []Finding{v.found(CodeList, value, "write one = before the first name", "= counts once, at the beginning, for all names")}
		case strings.HasPrefix(name, "^"):
			return []Finding{v.found(CodeList, value, "write one ^ before the first name, and = after it", "^ counts once, at the beginning, for all names")}
		}
	}
	if v.Kind != Adapters {
		return nil
	}
	return v.misreadAdapters(value, list, version)
}

func (v Variable) misreadAdapters(value string, list Names, version Version) []Finding {
	if len(list.Names) > maxAdapters {
		return []Finding{v.found(CodeList, value, "name fewer", "NCCL takes %d devices at most", maxAdapters)}
	}
	for _, entry := range list.Names {
		name, fields, _ := strings.Cut(entry, ":")
		if strings.Contains(fields, ":") && version.NCCL.before(at(30)) {
			return []Finding{v.found(CodeVersion, value, "write names and ports only", "NCCL %s knows no rails and planes; they came with %s", version.NCCL, at(30))}
		}
		if !list.Exact && endsInNumber(name) {
			fix := "write " + Names{Without: list.Without, Exact: true, Names: list.Names}.String()
			return []Finding{v.found(CodePrefix, value, fix, "without = each name is the beginning of one, and %s takes %s0 to %s9 too", name, name, name)}
		}
	}
	return nil
}

// endsInNumber is whether a device's name ends in its number among others, so that longer
// numbers begin with it. 0 does not begin any, and the digits of mlx5 are its kind's.
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
func ParseNames(text string) Names {
	list := Names{}
	if rest, ok := strings.CutPrefix(text, "^"); ok {
		list.Without, text = true, rest
	}
	if rest, ok := strings.CutPrefix(text, "="); ok {
		list.Exact, text = true, rest
	}
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

// Takes is whether NCCL would use a device of that name.
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
