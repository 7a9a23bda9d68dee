package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// The numbers asked for stay, and what is left out is named.
func TestTheTableOfRanksFitsTheTerminal(t *testing.T) {
	for width, torch := range map[int]bool{60: false, 80: false, 100: true, 120: true} {
		run, s := training(torch)
		var b bytes.Buffer
		if err := Status(&b, Standing{Run: run, State: s, Now: inThePast, Width: width}); err != nil {
			t.Fatal(err)
		}
		golden(t, fmt.Sprintf("memory/status-%d.txt", width), b.Bytes())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns of %d in %q", n, width, line)
			}
		}
	}
}

// What ranks tell of themselves may be long, and must not cost the numbers.
func TestWhatRanksTellIsCutWhereItDoesNotFit(t *testing.T) {
	var c columns
	c.add("RANK", 3, []string{"0"})
	c.add("PID", 1, []string{"123456"})
	c.add("TELLS", 2, []string{"step 1200, loss 2.31, and much more"})
	for width, want := range map[int]string{
		80: "RANK  PID     TELLS\n0     123456  step 1200, loss 2.31, and much more\n",
		30: "RANK  PID     TELLS\n0     123456  step 1200, loss…\n",
		24: "RANK  TELLS\n0     step 1200, loss 2…\nno room at 24 columns for PID\n",
	} {
		if got := string(c.text(width)); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}
