package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/failure/class"
)

func TestWhatAProgramSaidLastIsQuotedAndNotAskedFor(t *testing.T) {
	const said = "config error: lr must be > 0"
	for name, c := range map[string]struct{ stderr, last string }{
		"sys.exit with a text":         {said + "\n", said},
		"with a rank":                  {"x\n[rank3]: " + said + "\n", said},
		"below a log":                  {"12:30 INFO step 3\n" + said + "\n", said},
		"above Python's warnings":      {said + "\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 2 leaked semaphore objects\n  warnings.warn('resource_tracker: %d')\n", said},
		"above torch's":                {said + "\n[rank0]:[W1129 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed\n", said},
		"nothing at all":               {"", ""},
		"a progress bar alone":         {" 50%|#####     | 5/10 [00:01<00:01,  4.9it/s]\n", ""},
		"a log of what went well":      {"2026-01-02 10:00:00 INFO loaded 3 shards\n", ""},
		"a traceback that was cut off": {"Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    go()\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := Classify(wrote(c.stderr))
			if quoted := strings.Contains(v.Message, c.last) && strings.Contains(strings.Join(v.Evidence, "\n"), c.last); v.Class != class.Exit || !quoted {
				t.Errorf("%s: %s, %q", v.Class, v.Message, v.Evidence)
			}
			if asks := v.Advice == nil; asks != (c.last == "") {
				t.Errorf("of %q it advises %q", v.Message, v.Advice)
			}
		})
	}
}

func TestTheSameStatusIsTheSameFailureWhateverWasSaidLast(t *testing.T) {
	if a, b := wrote("step a\n"), wrote("step b\n"); Signature(Classify(a), a) != Signature(Classify(b), b) {
		t.Error("a line that changes makes two failures of one")
	}
}
