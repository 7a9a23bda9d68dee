package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
	"github.com/muster-dev/muster/launcher/failure/verdict"
)

// raised is a traceback whose quoted text is the source, and whose exception is the last.
func raised(source, last string) string {
	return "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 12, in <module>\n    " + source + "\n    ^^^^^^^^^^^^^^^^\n" +
		"  [Previous line repeated 7 more times]\n  File \"/home/u/model.py\", line 40, in forward\n    " + source + "\n" + last + "\n"
}

const badShape = "ValueError: bad shape 3x4"

// quotingOOM is a line of a program that looks for an OOM and raises something else.
const quotingOOM = `if x and "CUDA out of memory. Tried to allocate" not in e: raise ValueError("bad shape 3x4")`

func ranked(text string) string {
	return "[rank0]: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n[rank0]: ") + "\n"
}

func TestTheTextThatATracebackQuotesIsNotTheError(t *testing.T) {
	plain := raised(quotingOOM, badShape)
	others := "[rank1]: step 3\n"
	run(t, []row{
		{"plain", wrote(plain), class.UserError, verdict.Certain, class.No, "at model.py:40 in forward: " + badShape, `says "` + badShape},
		{"with ranks", wrote(ranked(plain)), class.UserError, verdict.Certain, class.No, badShape, `says "` + badShape},
		{"of two ranks in one stream", wrote(strings.ReplaceAll(ranked(plain), "\n[rank0]", "\n"+others+"[rank0]")), class.UserError, verdict.Certain, class.No, badShape, ""},
		{"with a collector's own words", wrote("INFO w-0  " + strings.ReplaceAll(plain, "\n", "\nINFO w-0  ")), class.Exit, "", "", "", ""},
		{"chained", wrote(raised(`raise RuntimeError("CUDA out of memory. Tried to allocate")`, "KeyError: 'a'") + "\nDuring handling of the above exception, another exception occurred:\n\n" + plain), class.UserError, verdict.Certain, class.No, badShape, "which came of: KeyError: 'a'"},
		{"with a word of another thread in between", wrote(strings.ReplaceAll(plain, "in forward\n", "in forward\nloaded 3 files\n")), class.UserError, verdict.Certain, class.No, badShape, ""},
		{"trimmed by a collector", wrote(strings.NewReplacer("\n    ", "\n", "\n  ", "\n").Replace(raised("raise "+quotingOOM, badShape))), class.UserError, "", class.No, badShape, ""},
		{"in an exception group", wrote("  + Exception Group Traceback (most recent call last):\n  |   File \"/a/t.py\", line 3, in f\n  |     " + quotingOOM + "\n  | ExceptionGroup: two (1 sub-exception)\n"), class.Exit, "", "", "", ""},
		{"of a file that cannot be parsed", wrote("  File \"train.py\", line 3\n    x = \"CUDA out of memory. Tried to allocate\" 3\n        ^\nSyntaxError: invalid syntax\n"), class.UserError, "", "", "cannot be parsed", ""},
		{"in the error file", Evidence{Code: 1, Worker: evidence.Worker{ErrorFile: []byte(`{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"/a/t.py\", line 2, in f\n    raise ValueError('x')  # [Errno 98] Address already in use\nValueError: x\n"}}}`)}}, class.UserError, "", "", "ValueError: x", ""},
		{"a logged one, and a status alone", with(wrote(raised(`log = "sh: x: command not found`, "Aborted")), func(e *Evidence) { e.Code = 127 }), class.Exit, "", "", "", ""},
		{"where the error is quoted and then raised, the error is shown", wrote(raised(`raise RuntimeError("CUDA error: out of memory, says my own loader")`, "RuntimeError: CUDA error: out of memory")), class.OOMUnknown, "", "", "", `says "RuntimeError: CUDA error: out of memory"`},
		{"steps that are quoted are no progress", wrote("step 1\nOOM: " + tooBig + "\n" + raised(`go_on()  # step 2`, "Aborted")), class.OOMCapacity, verdict.Certain, "", "", ""},
	})
}
