package output

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

func TestEveryPhraseIsOfAClass(t *testing.T) {
	for _, p := range phrases {
		if _, known := class.Find(p.class); !known {
			t.Errorf("%q is of class %s", p.any, p.class)
		}
	}
}

func TestNoPhraseIsHeardInTheTextOfAProgram(t *testing.T) {
	const badShape = "ValueError: bad shape 3x4"
	for _, p := range phrases {
		for _, words := range p.any {
			source := `log("` + words + ` 7 (Connection refused)")`
			trace := "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 12, in <module>\n    " + source + "\n    ^^^^^^^^^^^^^^^^\n" +
				"  [Previous line repeated 7 more times]\n  File \"/home/u/model.py\", line 40, in forward\n    " + source + "\n" + badShape + "\n"
			said, found := Read(&evidence.Worker{Stderr: []byte(trace)})
			if v := said.Verdict; !found || v.Class != class.UserError || v.Phrase != "" || !strings.Contains(v.Said, badShape) {
				t.Errorf("%q: %s, %q", words, v.Class, v.Said)
			}
		}
	}
}
