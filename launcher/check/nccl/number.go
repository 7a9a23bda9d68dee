package nccl

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// number is what a library makes of a text.
type number struct {
	n    int64
	rest string // what follows the number and is not read
	none bool   // there is no number at all
	huge bool   // it does not fit: NCCL takes its default, torch stops
}

// numberForms are what strtoll reads, which NCCL uses with base 0, so that 010 is 8 and 0x10 is 16 (src/misc/param.cc),
// and torch's std::stoi with base 10.
var numberForms = map[int]*regexp.Regexp{
	0:  regexp.MustCompile(`^[ \t-\r]*([+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*))`),
	10: regexp.MustCompile(`^[ \t-\r]*([+-]?[0-9]+)`),
}

func readNumber(text string, base int) number {
	at := numberForms[base].FindStringSubmatchIndex(text)
	if at == nil {
		return number{rest: text, none: true}
	}
	n, err := strconv.ParseInt(text[at[2]:at[3]], base, 64)
	return number{n: n, rest: text[at[1]:], huge: err != nil}
}

// misreadNumber is what goes wrong with a number.
func (v Variable) misreadNumber(value string, version Version) []Finding {
	if v.Torch {
		return v.misreadByTorch(value, version)
	}
	read := readNumber(value, 0)
	switch {
	case read.none:
		return v.found(CodeNumber, value, v.advice(value), "NCCL reads a number here, and takes this as 0")
	case read.huge:
		return v.found(CodeNumber, value, v.advice(value), "the number is too large, and NCCL takes its default")
	case strings.TrimRight(read.rest, " \t\r\n") != "":
		return v.found(CodeNumber, value, v.advice(value), "NCCL reads no units, and takes this as %d", read.n)
	case read.n >= 8 && plainDigits.MatchString(value):
		return v.found(CodeNumber, value, "write "+strings.TrimLeft(value, "0"), "NCCL reads a number with a leading 0 as octal, this one as %d", read.n)
	}
	return v.outOfRange(read.n, value, version)
}

// plainDigits is a number with a leading 0 that people read as decimal.
var plainDigits = regexp.MustCompile(`^0[0-9]+$`)

// torchWord is what torch takes for a switch.
var torchWord = regexp.MustCompile(`(?i)^(1|y|yes|t|true|0|n|no|f|false)$`)

// misreadByTorch: torch takes words for switches, and stops at what it cannot read (getCvarBool and getCvarInt in
// torch/csrc/distributed/c10d/Utils.hpp).
func (v Variable) misreadByTorch(value string, version Version) []Finding {
	read := readNumber(value, 10)
	switch {
	case v.Kind == Switch && torchWord.MatchString(value):
		return nil
	case v.Kind == Switch:
		return v.found(CodeNumber, value, v.advice(value), "torch stops with an error, as this is neither true nor false")
	case read.none || read.huge || int64(int32(read.n)) != read.n:
		return v.found(CodeNumber, value, v.advice(value), "torch stops with an error, as this is no number that it can take")
	case strings.TrimSpace(read.rest) != "":
		return v.found(CodeNumber, value, v.advice(value), "torch reads no units, and takes this as %d", read.n)
	}
	return v.outOfRange(read.n, value, version)
}

// outOfRange is where a number is not one that the variable takes.
func (v Variable) outOfRange(n int64, value string, version Version) []Finding {
	low, high := v.limits(version)
	if low == 0 && high == 0 || n >= low && n <= high {
		return nil
	}
	reason := ""
	if v.Note != "" {
		reason = ": " + v.Note
	}
	return v.found(CodeRange, value, fmt.Sprintf("write a number from %d to %d", low, high), "it lies between %d and %d%s", low, high, reason)
}

var (
	yes      = regexp.MustCompile(`(?i)^\s*(true|yes|on|y|t|enabled?)\s*$`)
	no       = regexp.MustCompile(`(?i)^\s*(false|no|off|n|f|disabled?)\s*$`)
	sizeForm = regexp.MustCompile(`^\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKmMgG])(?:i?[bB])?\s*$`)
)

// advice is what was probably meant by text where a number is read.
func (v Variable) advice(value string) string {
	size := sizeForm.FindStringSubmatch(value)
	switch {
	case v.Kind == Switch && yes.MatchString(value):
		return "write 1"
	case v.Kind == Switch && no.MatchString(value):
		return "write 0"
	case v.Kind == Switch:
		return "write 1 or 0"
	case v.Kind == Bytes && size != nil:
		n, _ := strconv.ParseFloat(size[1], 64) // the form has nothing else
		if n *= map[string]float64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[strings.ToLower(size[2])]; n == math.Trunc(n) {
			return fmt.Sprintf("write %.0f", n)
		}
	}
	if v.Kind == Bytes {
		return "write the number of bytes, without unit"
	}
	return "write a whole number, without unit"
}
