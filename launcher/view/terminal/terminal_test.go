package terminal

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shown feeds pieces to a stream, one a millisecond, and returns the lines shown.
func shown(pieces ...string) []string {
	var l Lines
	var got []string
	now := time.Unix(100, 0)
	show := func(line []byte) { got = append(got, string(line)) }
	for _, piece := range pieces {
		l.Add([]byte(piece), now, show)
		now = now.Add(time.Millisecond)
	}
	l.End(show)
	return got
}

func TestPiecesBecomeLines(t *testing.T) {
	for name, test := range map[string]struct{ pieces, want []string }{
		"whole lines":                    {[]string{"a\nb\n"}, []string{"a", "b"}},
		"a line in pieces":               {[]string{"a", "b", "\n"}, []string{"ab"}},
		"no end of line at the end":      {[]string{"a\nb"}, []string{"a", "b"}},
		"empty lines":                    {[]string{"\n\na\n"}, []string{"", "", "a"}},
		"CRLF is one end of line":        {[]string{"a\r\nb\r\n"}, []string{"a", "b"}},
		"CRLF in two pieces":             {[]string{"a\r", "\nb\n"}, []string{"a", "b"}},
		"a progress bar shows its last":  {[]string{"\r10%", "\r20%", "\r30%", "\n"}, []string{"10%", "30%"}},
		"what follows a carriage return": {[]string{"loading\rdone   \n"}, []string{"loading", "done   "}},
		"nothing":                        {[]string{""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(test.pieces...); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAProgressBarIsShownOnceASecond(t *testing.T) {
	var pieces []string
	for i := range 3000 { // three seconds
		pieces = append(pieces, fmt.Sprintf("\rstep %d", i))
	}
	if got := shown(append(pieces, "\n")...); len(got) > 5 || got[len(got)-1] != "step 2999" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
}

func TestALineWithoutEndDoesNotFillMemory(t *testing.T) {
	var pieces []string
	for range 100 {
		pieces = append(pieces, strings.Repeat("x", 64<<10))
	}
	got := shown(pieces...)
	if total := len(strings.Join(got, "")); total != 100*64<<10 || len(got) < 10 {
		t.Errorf("%d bytes in %d lines", total, len(got))
	}
}

func TestATerminalIsNotAtAWorkersMercy(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                      "plain",
		"é 漢":                        "é 漢",
		"\x1b[31mred\x1b[0m":         "\x1b[31mred\x1b[0m",
		"\x1b[2Jgone":                "^[[2Jgone",
		"\x1b]0;title\x07":           "^[]0;title^G",
		"\xff\xfe\x80\x00":           "\\xff\\xfe\\x80^@",
		"a\tb":                       "a\tb",
		"\u009b2J":                   "\\u009b2J",
		"\x1b[31":                    "^[[31",
		"back\bspace and \x7fdelete": "back^Hspace and ^?delete",
	} {
		if got := string(Clean([]byte(in))); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// What ranks tell of themselves may be long, and must not cost the numbers.
func TestWhatRanksTellIsCutWhereItDoesNotFit(t *testing.T) {
	var c Columns
	c.Add("RANK", 3, []string{"0"})
	c.Add("PID", 1, []string{"123456"})
	c.Add("TELLS", 2, []string{"step 1200, loss 2.31, and much more"})
	for width, want := range map[int]string{
		80: "RANK  PID     TELLS\n0     123456  step 1200, loss 2.31, and much more\n",
		30: "RANK  PID     TELLS\n0     123456  step 1200, loss…\n",
		24: "RANK  TELLS\n0     step 1200, loss 2…\nno room at 24 columns for PID\n",
	} {
		if got := string(c.Text(width)); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}

func TestTable_AlignsByTheCellsOfATerminal(t *testing.T) {
	var b bytes.Buffer
	table := NewTable(&b)
	fmt.Fprint(table, "a title\nNAME\tHOST\tEXIT\n漢字\tgpu1\t0\nx\t\t\n")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "a title\nNAME  HOST  EXIT\n漢字  gpu1  0\nx           \n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestWriteTable_LeavesColumnsOutThatTellNothing(t *testing.T) {
	var b bytes.Buffer
	WriteTable(&b, [][]string{{"A", "B", "C"}, {"1", "-", "-"}, {"22", "-", "3"}})
	if want := "  A   C\n  1   -\n  22  3\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	if WriteTable(&b, [][]string{{"A"}}); b.Len() > 0 {
		t.Errorf("a table without rows: %q", b.String())
	}
}

func TestKeys_DoWhatTheyStandFor(t *testing.T) {
	tty, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pressed := make(chan byte, 3)
	k := &keys{tty: tty, saved: &unix.Termios{}, does: map[byte]func(){'d': func() { pressed <- 'd' }}}
	k.workers.Go(k.read)
	if _, err := typed.WriteString("xdd"); err != nil {
		t.Fatal(err)
	}
	typed.Close()
	k.workers.Wait()
	if len(pressed) != 2 {
		t.Errorf("d was pressed %d times", len(pressed))
	}
}
