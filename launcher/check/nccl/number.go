package nccl

import (
	"fmt"
	"math/big"
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

// readNumber reads as strtoll does, which NCCL uses with base 0, so that 010 is 8 and
// 0x10 is 16 (src/misc/param.cc), and torch's std::stoi with base 10.
func readNumber(text string, base int) number {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	sign := ""
	if text != "" && (text[0] == '-' || text[0] == '+') {
		sign, text = text[:1], text[1:]
	}
	if base == 0 {
		base, text = baseOf(text)
	}
	end := 0
	for end < len(text) && digitValue(text[end]) < base {
		end++
	}
	if end == 0 {
		return number{rest: text, none: true}
	}
	n, err := strconv.ParseInt(sign+text[:end], base, 64)
	return number{n: n, rest: text[end:], huge: err != nil}
}

// baseOf is the base that the beginning of a number tells, and what of it is left to read.
func baseOf(text string) (int, string) {
	switch {
	case len(text) > 2 && (text[:2] == "0x" || text[:2] == "0X") && digitValue(text[2]) < 16:
		return 16, text[2:]
	case len(text) > 1 && text[0] == '0':
		return 8, text
	}
	return 10, text
}

func digitValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return 99
}

// misreadNumber is what goes wrong with a number.
func (v Variable) misreadNumber(value string, version Version) []Finding {
	if v.Torch {
		return v.misreadByTorch(value, version)
	}
	read := readNumber(value, 0)
	switch {
	case read.none:
		return []Finding{v.found(CodeNumber, value, v.advice(value), "NCCL reads a number here, and takes this as 0")}
	case read.huge:
		return []Finding{v.found(CodeNumber, value, v.advice(value), "the number is too large, and NCCL takes its default")}
	case strings.TrimRight(read.rest, " \t\r\n") != "":
		return []Finding{v.found(CodeNumber, value, v.advice(value), "NCCL reads no units, and takes this as %d", read.n)}
	case read.n >= 8 && plainDigits.MatchString(value):
		return []Finding{v.found(CodeNumber, value, "write "+strings.TrimLeft(value, "0"), "NCCL reads a number with a leading 0 as octal, this one as %d", read.n)}
	}
	return v.outOfRange(read.n, value, version)
}

// plainDigits is a number with a leading 0 that people read as decimal.
var plainDigits = regexp.MustCompile(`^0[0-9]+$`)

// misreadByTorch: torch takes words for switches, and stops at what it cannot read
// (getCvarBool and getCvarInt in torch/csrc/distributed/c10d/Utils.hpp).
func (v Variable) misreadByTorch(value string, version Version) []Finding {
	if v.Kind == Switch {
		if torchWords[strings.ToLower(value)] {
			return nil
		}
		return []Finding{v.found(CodeNumber, value, v.advice(value), "torch stops with an error, as this is neither true nor false")}
	}
	read := readNumber(value, 10)
	switch {
	case read.none || read.huge || int64(int32(read.n)) != read.n:
		return []Finding{v.found(CodeNumber, value, v.advice(value), "torch stops with an error, as this is no number that it can take")}
	case strings.TrimSpace(read.rest) != "":
		return []Finding{v.found(CodeNumber, value, v.advice(value), "torch reads no units, and takes this as %d", read.n)}
	}
	return v.outOfRange(read.n, value, version)
}

var torchWords = map[string]bool{
	"1": true, "y": true, "yes": true, "t": true, "true": true,
	"0": true, "n": true, "no": true, "f": true, "false": true,
}

// outOfRange is where a number is not one that the variable takes.
func (v Variable) outOfRange(n int64, value string, version Version) []Finding {
	low, high := v.Low, v.high(version)
	if v.Kind == Switch {
		low, high = 0, 1
	}
	if low == 0 && high == 0 || n >= low && n <= high {
		return nil
	}
	reason := ""
	if v.Note != "" {
		reason = ": " + v.Note
	}
	return []Finding{v.found(CodeRange, value, fmt.Sprintf("write a number from %d to %d", low, high), "it lies between %d and %d%s", low, high, reason)}
}

// advice is what was probably meant by text where a number is read.
func (v Variable) advice(value string) string {
	switch {
	case v.Kind == Switch:
		return "write " + switchAdvice(strings.ToLower(strings.TrimSpace(value)))
	case v.Kind == Bytes:
		if bytes := inBytes(value); bytes != "" {
			return "write " + bytes
		}
		return "write the number of bytes, without unit"
	}
	return "write a whole number, without unit"
}

func switchAdvice(word string) string {
	switch word {
	case "true", "yes", "on", "y", "t", "enable", "enabled":
		return "1"
	case "false", "no", "off", "n", "f", "disable", "disabled":
		return "0"
	}
	return "1 or 0"
}

var sizeForm = regexp.MustCompile(`^\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKmMgG])(?:i?[bB])?\s*$`)

// inBytes is a size with a unit in bytes, "" where it is none. Units count in 1024s.
func inBytes(text string) string {
	parts := sizeForm.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	size, _ := new(big.Rat).SetString(parts[1]) // the form has nothing else
	unit := map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[strings.ToLower(parts[2])]
	size.Mul(size, big.NewRat(unit, 1))
	if !size.IsInt() {
		return ""
	}
	return size.Num().String()
}
