package lines

import (
	"strings"
	"testing"
)

// quoted are the lines of a voice that a traceback quotes.
func quoted(v *Voice) string {
	var all []string
	for _, line := range v.Lines {
		if line.Source {
			all = append(all, strings.TrimSpace(line.Text))
		}
	}
	return strings.Join(all, "|")
}

func TestWhatATracebackQuotesIsMarkedAndNotInTheFlatText(t *testing.T) {
	const frame = "  File \"a.py\", line 3, in f\n"
	for name, c := range map[string]struct{ text, quoted string }{
		"text and markers":                    {frame + "    boom()\n    ^^^^^^\nValueError: x\n    boom of the message\n", "boom()|^^^^^^"},
		"a statement of several lines":        {frame + "    boom(\n    ~~~~^\n    \n        1)\n        ^^\nValueError: x\n", "boom(|~~~~^||1)|^^"},
		"a frame without text":                {frame + frame + "ValueError: boom\n", ""},
		"deeper than usual":                   {"    " + frame + "        boom()\n    ValueError: x\n", "boom()"},
		"a collector's words in front":        {"w-0: " + frame + "w-0:     boom()\nw-0: ValueError: x\n", "w-0:     boom()"},
		"lines that lost their blanks":        {"File \"a.py\", line 3, in f\nboom()\nValueError: x\nboom\n", "boom()"},
		"the same, and no text":               {"File \"a.py\", line 3, in f\nValueError: boom\n", ""},
		"a word of a thread before the text":  {frame + "loaded boom\n    boom()\nValueError: x\n", "boom()"},
		"the head of a trace within a trace":  {frame + "    Traceback (most recent call last):\n", ""},
		"a file that somebody speaks of":      {"see File \"a.py\", line 3, in f\n    boom\n", ""},
		"an exception group":                  {"  |   File \"a.py\", line 3, in f\n  |     boom()\n  | ValueError: x\n", "|     boom()"},
		"recursion that was cut short":        {frame + "    boom()\n  [Previous line repeated 9 more times]\n" + frame + "    boom()\nValueError: x\n", "boom()|boom()"},
		"indented lines that follow no frame": {"RuntimeError: x\n    boom()\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Read([]byte(c.text)).Voices[0]
			if got := quoted(v); got != c.quoted {
				t.Errorf("quoted is %q, want %q", got, c.quoted)
			}
			if strings.Contains(v.Flat, "boom()") != strings.Contains(c.text, "boom()") && c.quoted == "" || c.quoted != "" && strings.Contains(v.Flat, "boom()") {
				t.Errorf("flat is %q", v.Flat)
			}
		})
	}
}

func TestOfRanksInOneStreamEachQuotesItsOwn(t *testing.T) {
	log := Read([]byte("[rank0]:   File \"a.py\", line 3, in f\n[rank1]:     boom of 1\n[rank0]:     boom()\n[rank0]: ValueError: x\n"))
	for i := range log.Voices {
		v := &log.Voices[i]
		if got, want := quoted(v), map[int]string{0: "boom()"}[v.Rank]; got != want {
			t.Errorf("of rank %d is quoted %q, want %q", v.Rank, got, want)
		}
	}
	if quoted(log.Whole) != "boom()" {
		t.Errorf("of all is quoted %q", quoted(log.Whole))
	}
}
