// Package plaintext reads what nvidia-smi prints as plain text: -L (names of MIG devices), topo -m
// (links between GPUs), nvlink -s (each NVLink), and its sentences about what is wrong.
package plaintext

import (
	"bytes"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Listed is a GPU in the answer of nvidia-smi -L.
type Listed struct {
	Index int
	Name  string
	UUID  string
	MIG   []ListedMIG
}

// ListedMIG is a MIG device under its GPU. The queries tell neither profile nor UUID.
type ListedMIG struct {
	Profile string // "1g.10gb", "1c.3g.71gb", "1g.10gb+me"
	Index   int    // among the MIG devices of the GPU
	UUID    string // old drivers: MIG-GPU-…/7/0
}

var (
	listedGPU = regexp.MustCompile(`^GPU (\d{1,4}): (.*?)(?: \(UUID: ([^)\s]+)\))?$`)
	listedMIG = regexp.MustCompile(`^MIG (\S+)\s+Device\s+(\d{1,4}): \(UUID: ([^)\s]+)\)$`)
)

// ParseList reads the answer of nvidia-smi -L. Other lines, such as those about lost
// GPUs, are left to ParseFailures.
func ParseList(output []byte) []Listed {
	var found []Listed
	for text := range Lines(output) {
		if gpu, is := parseGPULine(text); is {
			found = append(found, gpu)
		} else if m := listedMIG.FindStringSubmatch(text); m != nil && len(found) > 0 {
			parent := &found[len(found)-1]
			parent.MIG = append(parent.MIG, ListedMIG{Profile: m[1], Index: Digits(m[2]), UUID: m[3]})
		}
	}
	return found
}

// parseGPULine reads "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)", which also heads the
// answers of nvlink -s. "GPU 0: ... GPU is lost" is a sentence, no GPU.
func parseGPULine(text string) (Listed, bool) {
	m := listedGPU.FindStringSubmatch(text)
	if m == nil || Classify(text) != nil {
		return Listed{}, false
	}
	return Listed{Index: Digits(m[1]), Name: m[2], UUID: m[3]}, true
}

// Digits reads what a regular expression has found to be a short row of digits.
func Digits(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// Printable replaces what is no text by blanks: bytes that are no UTF-8, which gRPC refuses, and
// control characters, which XML and terminals do not accept.
func Printable(output []byte) []byte {
	return bytes.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return r
		case r < ' ' || r == 0x7F || r == utf8.RuneError || r == 0xFFFE || r == 0xFFFF:
			return ' '
		default:
			return r
		}
	}, output)
}

// Lines are the lines of an output without the blanks around them.
func Lines(output []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(Printable(output))) {
			if !yield(strings.TrimSpace(line)) {
				return
			}
		}
	}
}

// Clip shortens a text that is too long.
func Clip(text string, longest int) string {
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
