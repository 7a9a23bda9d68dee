// Package progress reads how far a program is from what it prints: a step, an iteration,
// an epoch, or a number that a job file's own pattern finds. It is pure and small, as it
// looks at every line that a rank writes.
package progress

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/pattern"
	"github.com/muster-dev/muster/launcher/observe"
)

// Mark is how far a program is: by what it prints as by what it tells.
type Mark = observe.Mark

// Nowhere is the mark of a program that has said nothing.
var Nowhere = observe.Nowhere

// Pattern says what a line of progress looks like. The zero value knows the usual forms.
type Pattern struct{ own *regexp.Regexp }

// Compile reads a pattern in Go's syntax (RE2), with one group around the number.
func Compile(text string) (Pattern, error) {
	re, err := regexp.Compile(text)
	switch {
	case err != nil:
		return Pattern{}, fmt.Errorf("it is no regular expression of Go's syntax (RE2): %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	case re.NumSubexp() != 1:
		return Pattern{}, fmt.Errorf("it needs one group around the number, such as \"step ([0-9]+)\", and has %d; (?:...) is no group", re.NumSubexp())
	case re.MatchString(""):
		return Pattern{}, fmt.Errorf("it fits an empty line, so that it would fit every line")
	}
	return Pattern{re}, nil
}

// String is the pattern as it was written, "" for the usual forms.
func (p Pattern) String() string {
	if p.own == nil {
		return ""
	}
	return p.own.String()
}

// MarshalText is String: a pattern is written down as it was given.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// maxLine is what of a line is looked at: numbers of steps stand at the start, or at the
// end of a progress bar.
const maxLine = 1024

// Read is how far the line says that the program is.
func (p Pattern) Read(line string) (Mark, bool) {
	if len(line) > maxLine {
		line = line[:maxLine/2] + " " + line[len(line)-maxLine/2:]
	}
	if p.own != nil {
		m := p.own.FindStringSubmatch(line)
		if m == nil {
			return Nowhere, false
		}
		n, ok := number(m[1])
		return Mark{Epoch: -1, Step: n}, ok
	}
	return usual(line)
}

// Forms that programs use: "step 12/500", "Step: 12", "global_step=12", {"step": 12},
// "iteration     100/ 5000 |" (Megatron), "Epoch [3/10], Step [100/600]", "Epoch: [0]
// [10/1000]" (torchvision), "Epoch 0:  6%|#  | 320/5001 [6:28<94:39, 1.4it/s" (tqdm).
var (
	stepForm  = pattern.New(`(?i)(?:([a-z]+)[ _-])?\b(?:global_?step|step|iter|iteration|update)\b["']?\s*[:=#]?\s*\[?\s*([0-9]{1,15})\b`)
	epochForm = pattern.New(`(?i)(?:([a-z]+)[ _-])?\bepoch\b["']?\s*[:=#]?\s*\[?\s*([0-9]{1,15})\b(?:\]\s*\[\s*([0-9]{1,15})\s*/)?`)
	barForm   = pattern.New(`^(.{0,80}?)[0-9]{1,3}%\|[^|]{0,400}\|\s*([0-9]{1,15})/[0-9]+ \[`)
	// barOf is what a bar of training is labelled with; others are downloads and the like.
	barOf = pattern.New(`(?i)^\W*$|epoch|train|step|iter`)
	// limits are words before a number that is no progress: "max step 1000".
	limits = pattern.New(`(?i)^(?:max|total|num|warmup|every|per|save|eval|val|test|of|from|resume|resuming)$`)
)

func usual(line string) (Mark, bool) {
	lower := strings.ToLower(line)
	bar := strings.Contains(lower, "%|")
	if !bar && !strings.Contains(lower, "step") && !strings.Contains(lower, "iter") && !strings.Contains(lower, "epoch") && !strings.Contains(lower, "update") {
		return Nowhere, false
	}
	mark := Nowhere
	if m := epochForm.FindStringSubmatch(line); m != nil && !limits.MatchString(m[1]) {
		mark.Epoch, _ = number(m[2])
		if m[3] != "" {
			mark.Step, _ = number(m[3])
		}
	}
	if m := stepForm.FindStringSubmatch(line); m != nil && !limits.MatchString(m[1]) {
		mark.Step, _ = number(m[2])
	}
	if m := barForm.FindStringSubmatch(line); bar && mark.Step < 0 && m != nil && barOf.MatchString(m[1]) {
		mark.Step, _ = number(m[2])
	}
	return mark, mark.Known()
}

func number(text string) (int, bool) {
	text = strings.Map(func(r rune) rune {
		if r == ',' || r == '_' {
			return -1
		}
		return r
	}, strings.TrimSpace(text))
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return -1, false
	}
	return n, true
}

// Counter follows the lines of a rank. Its zero value is of no use: see NewCounter.
type Counter struct {
	pattern  Pattern
	epoch    int // the newest that was said
	first    Mark
	furthest Mark
}

// NewCounter makes a counter that has seen nothing.
func NewCounter(p Pattern) *Counter { return &Counter{p, -1, Nowhere, Nowhere} }

// Line takes a line in and tells whether the program is further than before. What counts
// back, as a validation does, changes nothing.
func (c *Counter) Line(line string) bool {
	m, ok := c.pattern.Read(line)
	if !ok {
		return false
	}
	if m.Epoch >= 0 {
		c.epoch = m.Epoch
	} else {
		m.Epoch = c.epoch
	}
	if !c.first.Known() {
		c.first = m
	}
	if c.furthest.Known() && m.Compare(c.furthest) <= 0 {
		return false
	}
	c.furthest = m
	return true
}

// First is where the program began.
func (c *Counter) First() Mark { return c.first }

// Furthest is how far it has come.
func (c *Counter) Furthest() Mark { return c.furthest }
