// Package lines reads what programs write when they die, as collectors leave it: cut off
// at the start, wrapped, with time stamps and ranks in front, coloured, glued to progress
// bars, several ranks in one stream. It finds lines, sentences across lines, and Python's
// tracebacks; what they mean is not its business. Its time is linear in the text.
package lines

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/failure/pattern"
)

// Line is one line without what stood in front of it.
type Line struct {
	Text string // without trailing blanks
	Rank int    // that its prefix named, NoRank for none
	At   int    // its place among all lines
	// Source is set where a traceback quotes the program's text: nobody has said it.
	Source bool
}

// NoRank is the rank of a line without one.
const NoRank = -1

// Log is a text as lines, those of each rank apart.
type Log struct {
	Voices []Voice
	// Whole has all lines as they came: a line that was folded has its rank in front of its
	// first part only. Nil where there is one voice.
	Whole *Voice
}

// Only is the one rank that speaks, NoRank where none or several do.
func (l Log) Only() int {
	only := NoRank
	for _, v := range l.Voices {
		if v.Rank != NoRank && only != NoRank {
			return NoRank
		}
		only = max(only, v.Rank)
	}
	return only
}

// Voice is what one rank wrote, or what came without a rank.
type Voice struct {
	Rank  int
	Lines []Line
	// Flat has all lines but those of Source with one blank between them, so that sentences
	// are whole again.
	Flat string
	// starts are the places in Flat where lines begin.
	starts []int
	quoting
}

// Limits of what is looked at: the end of a log is what matters.
const (
	maxText   = 256 << 10
	maxLine   = 16 << 10
	maxVoices = 64
)

// Read takes a text apart.
func Read(text []byte) Log {
	if len(text) > maxText {
		text = text[len(text)-maxText:]
	}
	var log Log
	whole := &Voice{Rank: NoRank}
	voices := map[int]int{}
	for at, raw := range split(plain(text)) {
		line, rank := strip(raw)
		i, known := voices[rank]
		if !known {
			if len(voices) == maxVoices {
				rank = NoRank
			}
			if i, known = voices[rank]; !known {
				i = len(log.Voices)
				voices[rank] = i
				log.Voices = append(log.Voices, Voice{Rank: rank})
			}
		}
		v := &log.Voices[i]
		said := Line{line, rank, at, v.step(line)}
		v.Lines = append(v.Lines, said)
		whole.Lines = append(whole.Lines, said)
	}
	for i := range log.Voices {
		log.Voices[i].flatten()
	}
	if len(log.Voices) > 1 {
		whole.flatten()
		log.Whole = whole
	}
	return log
}

func (v *Voice) flatten() {
	var flat strings.Builder
	for _, line := range v.Lines {
		v.starts = append(v.starts, flat.Len())
		if line.Source {
			continue
		}
		flat.WriteString(strings.TrimSpace(line.Text))
		flat.WriteByte(' ')
	}
	v.Flat = flat.String()
}

// LineAt is the line that a place of Flat is in.
func (v *Voice) LineAt(place int) Line {
	i, _ := slices.BinarySearch(v.starts, place+1)
	return v.Lines[i-1]
}

// plain takes out what only a terminal shows.
func plain(text []byte) string {
	s := strings.ToValidUTF8(string(text), "?")
	if !strings.Contains(s, "\x1b") {
		return s
	}
	var kept strings.Builder
	for {
		at := strings.IndexByte(s, '\x1b')
		if at < 0 {
			kept.WriteString(s)
			return kept.String()
		}
		kept.WriteString(s[:at])
		s = s[at+1+sequence(s[at+1:]):]
	}
}

// sequence is the length of a control sequence (ECMA-48) after its ESC: CSI, OSC, or one
// character.
func sequence(s string) int {
	const longest = 200
	if s == "" {
		return 0
	}
	switch s[0] {
	case '[':
		for i := 1; i < min(len(s), longest); i++ {
			if s[i] >= '@' && s[i] <= '~' {
				return i + 1
			}
			if s[i] < ' ' || s[i] > '~' {
				break
			}
		}
	case ']':
		for i := 1; i < min(len(s), longest); i++ {
			if s[i] == '\a' {
				return i + 1
			}
			if s[i] == '\x1b' || s[i] == '\n' {
				return i
			}
		}
	}
	return 1
}

// split gives lines; what a progress bar wrote over is a line of its own, and so is what
// a structured logger has escaped.
func split(text string) []string {
	var all []string
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if strings.HasPrefix(strings.TrimSpace(line), "{") && strings.Contains(line, `\n`) {
			for _, part := range strings.Split(line, `\n`) {
				all = append(all, cut(part))
			}
			continue
		}
		all = append(all, cut(line))
	}
	return all
}

func cut(line string) string {
	line = strings.TrimRight(line, " \t")
	if len(line) > maxLine {
		line = line[:maxLine/2] + " ... " + line[len(line)-maxLine/2:]
	}
	return line
}

// prefix is something that collectors put in front of lines.
type prefix struct {
	first string // bytes that it can begin with
	form  *pattern.Pattern
}

func (p prefix) begins(b byte) bool { return strings.IndexByte(p.first, b) >= 0 }

// prefixes are all of them; several may stand in a row.
var prefixes = []prefix{
	// 2021-12-08T01:25:15.387576461Z stderr F
	{"12", pattern.New(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?(?: std(?:out|err) [FP])?(?: |$)`)},
	// [2025-11-24 11:20:21] and [11:20:21]
	{"[", pattern.New(`^\[(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[T ])?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?Z?\](?: |$)`)},
	// [80746], a collector's number
	{"[", pattern.New(`^\[[0-9]{3,7}\](?: |$)`)},
	// (RayWorkerVllm pid=1756, ip=10.0.0.1)
	{"(", pattern.New(`^\([A-Za-z_][\w.]{0,60} (?:rank=[0-9]+ )?pid=[0-9]+(?:, ip=[0-9a-fA-F.:]+)?\)(?: |$)`)},
	// trainer-0-1 | and trainer_1  |, of compose
	{"abcdefghijklmnopqrstuvwxyz", pattern.New(`^[a-z][\w.-]{0,60}[_-][0-9]+ {0,10}\| `)},
}

// ranked are prefixes that name a rank.
var ranked = pattern.New(`^\[(?:rank|default|trainer)[ -]?([0-9]{1,6})\]: ?`)

// strip takes prefixes off, and tells the rank that one of them named.
func strip(line string) (rest string, rank int) {
	rest, rank = line, NoRank
	for range 8 {
		before := rest
		if strings.HasPrefix(rest, "[") {
			if m := ranked.FindStringSubmatch(rest); m != nil {
				rank, _ = strconv.Atoi(m[1])
				rest = rest[len(m[0]):]
			}
		}
		for _, p := range prefixes {
			if rest != "" && p.begins(rest[0]) {
				rest = rest[len(p.form.FindString(rest)):]
			}
		}
		if rest == before {
			break
		}
	}
	return rest, rank
}

// Around is the line that a place is in, from its start if that is near, and as far as
// length at least.
func (v *Voice) Around(place, length int) string {
	const near = 60
	i, _ := slices.BinarySearch(v.starts, place+1)
	begin, end := v.starts[i-1], len(v.Flat)
	if place-begin > near {
		begin = place
	}
	if j, _ := slices.BinarySearch(v.starts, place+length); j < len(v.starts) {
		end = v.starts[j]
	}
	return v.Flat[begin:end]
}

// Near is the part of Flat around a place, for figures of a sentence that begins there.
func (v *Voice) Near(place, length int) string {
	return v.Flat[place:min(place+length, len(v.Flat))]
}
