package lines

import (
	"strings"
	"testing"
)

func texts(v *Voice) string {
	var all []string
	for _, line := range v.Lines {
		all = append(all, line.Text)
	}
	return strings.Join(all, "|")
}

func TestPrefixesOfCollectorsAreTakenOff(t *testing.T) {
	for line, want := range map[string]string{
		"2021-12-08T01:25:15.387576461Z   File \"x\"":             "  File \"x\"",
		"2021-12-08T01:25:15.387576461Z stderr F RuntimeError":    "RuntimeError",
		"2025-11-24T03:20:21.0Z [2025-11-24 11:20:21] host [5] x": "host [5] x",
		"[80746] [rank0]:[E321 x.cpp:607] [Rank 0] Watchdog":      "[E321 x.cpp:607] [Rank 0] Watchdog",
		"(RayWorkerVllm pid=1756) WARNING x":                      "WARNING x",
		"[default7]:x":                                            "x",
		"[3] is setting up":                                       "[3] is setting up",
		"trainer-1  | x":                                          "x",
		"a plain line":                                            "a plain line",
		"\x1b[1;31mRed\x1b[0m text\x1b]0;title\x07":               "Red text",
		"[12345.678] NVRM":                                        "[12345.678] NVRM",
	} {
		log := Read([]byte(line))
		if got := texts(&log.Voices[0]); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

func TestRanksOfOneStreamAreReadApart(t *testing.T) {
	log := Read([]byte("a\n[rank1]: b\n[rank0]: c\n[rank1]: d\ne\rf\n"))
	got := map[int]string{}
	for i := range log.Voices {
		got[log.Voices[i].Rank] = texts(&log.Voices[i])
	}
	if got[NoRank] != "a|e|f" || got[0] != "c" || got[1] != "b|d" || len(got) != 3 || texts(log.Whole) != "a|b|c|d|e|f" || log.Only() != NoRank {
		t.Errorf("%v, %s", got, texts(log.Whole))
	}
	if only := Read([]byte("a\n[rank7]: b")); only.Only() != 7 {
		t.Errorf("only %d", only.Only())
	}
}

func TestFoldedSentencesAreWholeAgain(t *testing.T) {
	log := Read([]byte("CUDA out of memory. Tried\n  to allocate 2 GiB\nx\n"))
	v := &log.Voices[0]
	at := strings.Index(v.Flat, "Tried to allocate")
	if at < 0 || v.LineAt(at).At != 0 || v.LineAt(at+8).At != 1 || v.Around(at, 17) != "CUDA out of memory. Tried to allocate 2 GiB " {
		t.Errorf("%q, %q", v.Flat, v.Around(max(at, 0), 17))
	}
}

func TestEscapedLinesOfStructuredLogsAreLines(t *testing.T) {
	log := Read([]byte(`{"log": "Traceback (most recent call last):\n  File \"/a/t.py\", line 1, in f\nValueError: x\n"}`))
	if len(log.Voices[0].Lines) != 4 {
		t.Errorf("%q", texts(&log.Voices[0]))
	}
}

const whole = `Traceback (most recent call last):
  File "/home/u/train.py", line 12, in <module>
    main()
  File "/usr/lib/python3.11/site-packages/torch/nn.py", line 9, in f
    y = g(x)
        ^^^^
torch.OutOfMemoryError: CUDA out of memory
`

func TestTracebacksAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		text, types, where string
		linked, noise      bool
	}{
		"whole":              {text: whole, types: "torch.OutOfMemoryError", where: "train.py:12"},
		"without its head":   {text: whole[strings.Index(whole, "\n")+1:], types: "torch.OutOfMemoryError", where: "train.py:12"},
		"indented":           {text: "  " + strings.ReplaceAll(whole, "\n", "\n  "), types: "torch.OutOfMemoryError", where: "train.py:12"},
		"without an end":     {text: whole[:strings.Index(whole, "torch.Out")], types: "", where: "train.py:12"},
		"bare":               {text: "x\nValueError: y\nz\n", types: "ValueError"},
		"a type of its own":  {text: "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nmy.pkg.Oops: y\n", types: "my.pkg.Oops", where: "a.py:1 in f"},
		"not parsed":         {text: "  File \"a.py\", line 3\n    def (\n        ^\nSyntaxError: invalid syntax\n", types: "SyntaxError", where: "a.py:3"},
		"two linked":         {text: whole + "\nDuring handling of the above exception, another exception occurred:\n\n" + strings.Replace(whole, "torch.OutOfMemoryError", "KeyError", 1), types: "torch.OutOfMemoryError KeyError", where: "train.py:12", linked: true},
		"two":                {text: whole + whole, types: "torch.OutOfMemoryError torch.OutOfMemoryError", where: "train.py:12"},
		"nobody waits":       {text: "Exception ignored in: <function f>\n" + whole, types: "torch.OutOfMemoryError", where: "train.py:12", noise: true},
		"noise, long before": {text: "Exception ignored in: <function f>\na\nb\nc\nd\n" + whole, types: "torch.OutOfMemoryError", where: "train.py:12"},
		"nothing":            {text: "INFO: x\nWARNING: Error y\n12:30 z\n"},
	} {
		t.Run(name, func(t *testing.T) {
			log := Read([]byte(c.text))
			traces := log.Voices[0].Traces()
			var types []string
			var last Trace
			for _, trace := range traces {
				types, last = append(types, trace.Type), trace
			}
			frame, _ := last.Innermost()
			if strings.Join(types, " ") != c.types || frame.String() != c.where || last.Linked != c.linked || last.Noise != c.noise {
				t.Errorf("%+v, %s", traces, frame)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("[rank1]: \x1b[31mx\r\n{\\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		log := Read(text)
		for i := range log.Voices {
			v := &log.Voices[i]
			v.Traces()
			for place := range min(len(v.Flat), 200) {
				v.LineAt(place)
				if around := v.Around(place, 10); !strings.Contains(v.Flat, around) || around == "" {
					t.Errorf("%q is not in %q", around, v.Flat)
				}
			}
		}
	})
}
