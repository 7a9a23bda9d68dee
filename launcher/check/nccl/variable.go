package nccl

import (
	"strings"

	"github.com/agext/levenshtein"
)

// Kind is how a variable's text is read.
type Kind int

const (
	Text       Kind = iota // anything
	Switch                 // 0 or 1
	Number                 // a whole number
	Bytes                  // a whole number of bytes, without unit
	Channels               // a number of channels, whose limit follows from the release
	Level                  // a distance between devices
	Word                   // one of Words
	WordList               // several of Words with "," between; "^" takes out
	Algorithms             // words per function: "ring;allreduce:tree"; "^" takes out
	Interfaces             // prefixes of network interfaces; "=" exact, "^" takes out
	Adapters               // the same of InfiniBand devices, with ports
	File                   // a path
)

// Variable is a variable that NCCL or torch reads.
type Variable struct {
	Name      string
	Torch     bool // torch reads it, not NCCL: by other rules
	Kind      Kind
	Low, High int64 // of numbers; both 0: no limit
	Words     []string
	// WordSince are words that older releases do not know.
	WordSince map[string]Release
	// ExactCase is set where words in another case are not known.
	ExactCase bool

	Since  Release // the first that reads it, where that is known
	Until  Release // the first that does not any more; unset: still read
	Former string  // its name before Since
	// Instead is its name now, from the release Deprecated on.
	Instead    string
	Deprecated Release

	Note string // what it means or what goes wrong, in a sentence without a full stop
}

// Lookup finds a variable by name.
func Lookup(name string) (Variable, bool) {
	v, ok := byName[name]
	return v, ok
}

// Concerns is whether a variable's name is of the families that this package knows.
func Concerns(name string) bool {
	return strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "TORCH_NCCL_") ||
		strings.HasPrefix(name, "TORCH_FR_") || name == "TORCH_DISTRIBUTED_DEBUG"
}

var byName = index(variables, torchVariables)

func index(tables ...[]Variable) map[string]Variable {
	all := map[string]Variable{}
	for _, table := range tables {
		for _, v := range table {
			all[v.Name] = v
		}
	}
	return all
}

// reader is who reads the variable, in words, and the release of it that was found.
func (v Variable) reader(version Version) (string, Release) {
	if v.Torch {
		return "torch", version.Torch
	}
	return "NCCL", version.NCCL
}

// high is the largest number that the release takes, 0 for no limit.
func (v Variable) high(version Version) int64 {
	if v.Kind == Channels && version.NCCL.before(at(25)) {
		return 32
	}
	return v.High
}

// nearestName is the variable that name is probably a slip of, "" where there is none.
func nearestName(name string) string {
	if _, known := Lookup("TORCH_" + name); known {
		return "TORCH_" + name
	}
	best, bestDistance := "", 3
	consider := func(candidate string) {
		distance := levenshtein.Distance(name, candidate, nil)
		if distance < bestDistance || distance == bestDistance && candidate < best {
			best, bestDistance = candidate, distance
		}
	}
	for candidate := range byName {
		consider(candidate)
	}
	for candidate := range otherNames {
		consider(candidate)
	}
	return best
}
