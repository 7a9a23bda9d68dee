package observe

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is taken in.
const (
	MaxLine     = 4096 // bytes of a line; a path is at most as long
	MaxDatagram = 16 << 10
	maxPhase    = 80 // bytes
	maxName     = 64
	maxValues   = 64 // names per rank
	maxNumber   = 1_000_000_000_000_000
)

// message is a line. One of its fields is set, by kind.
type message struct {
	kind   string
	number int
	name   string
	value  float64
	text   string
	torch  *torchWord
}

var errTooLong = fmt.Errorf("a line has at most %d bytes", MaxLine)

// parse reads a line, without its end.
func parse(line string) (message, error) {
	line = strings.TrimRight(line, "\r")
	switch {
	case len(line) > MaxLine:
		return message{}, errTooLong
	case !utf8.ValidString(line):
		return message{}, errors.New("it is no UTF-8")
	case strings.IndexFunc(line, unicode.IsControl) >= 0:
		return message{}, errors.New("it holds control characters")
	}
	kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	m := message{kind: kind, text: rest}
	var err error
	switch kind {
	case "step", "epoch":
		m.number, err = number(rest)
	case "phase":
		if rest == "" || len(rest) > maxPhase {
			err = fmt.Errorf("a phase is text of 1 to %d bytes", maxPhase)
		}
	case "value":
		m.name, m.value, err = value(rest)
	case "checkpoint":
		if !filepath.IsAbs(rest) {
			err = errors.New("a checkpoint is an absolute path")
		}
	case "torch":
		m.torch, err = parseTorch(rest)
	default:
		err = errors.New("the first word is none of step, epoch, phase, value and checkpoint")
	}
	if err != nil {
		return message{}, err
	}
	return m, nil
}

func number(word string) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > maxNumber {
		return 0, fmt.Errorf("%.40q is no whole number from 0 on", word)
	}
	return n, nil
}

func value(rest string) (name string, v float64, err error) {
	name, word, _ := strings.Cut(rest, " ")
	if name == "" || len(name) > maxName {
		return "", 0, fmt.Errorf("the name of a value has 1 to %d bytes", maxName)
	}
	v, err = strconv.ParseFloat(strings.TrimSpace(word), 64)
	if err != nil && !math.IsInf(v, 0) { // what is too large for a float64 is infinite
		return "", 0, fmt.Errorf("%.40q is no number", word)
	}
	return name, v, nil
}
