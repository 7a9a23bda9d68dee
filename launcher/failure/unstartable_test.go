package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

func TestAProgramThatIsThereIsNotCalledMissing(t *testing.T) {
	const (
		mayNot  = "there but may not be executed"
		foreign = "no #! line, or is built for another machine"
		missing = "a program or library was not found"
	)
	for _, c := range []struct {
		code               int
		says, what, advice string
	}{
		{126, "sh: 1: ./train.sh: Permission denied", mayNot, "chmod +x"},
		{126, "timeout: failed to run command './train.sh': Permission denied", mayNot, "noexec"},
		{126, "bash: line 1: ./train: cannot execute binary file: Exec format error", foreign, "#!/usr/bin/env python3"},
		{127, "launcher: exec ./train: exec format error", foreign, "uname -m"},
		{126, "bash: ./train.sh: /opt/py/bin/python: bad interpreter: No such file or directory", "that the program names is not there", "first line"},
		{127, "bash: line 1: ./train.sh: cannot execute: required file not found", "that the program names is not there", "ldd"},
		{2, "sh: 0: cannot open train.sh: Permission denied", "there but may not be read", "chmod +r"},
		{2, "python: can't open file '/x/train.py': [Errno 13] Permission denied", "there but may not be read", "chmod +r"},
		{127, "sh: 1: trian: not found", missing, "last lines"},
		{127, "env: 'trian': No such file or directory", missing, "last lines"},
	} {
		v := Classify(Evidence{Code: c.code, Worker: evidence.Worker{Stderr: []byte(c.says + "\n")}})
		if v.Class != class.UserError || !strings.Contains(v.Message, c.what) || !strings.Contains(v.Message, c.says) || !strings.Contains(advised(v), c.advice) {
			t.Errorf("%s: %s, %q, %q", c.says, v.Class, v.Message, advised(v))
		}
	}
}

func TestWhyAProgramCouldNotBeStartedIsExplained(t *testing.T) {
	for start, want := range map[string]string{
		"fork/exec ./train.sh: exec format error":    "#!/usr/bin/env python3",
		"fork/exec ./train.sh: permission denied":    "noexec",
		"exec: \"./train.sh\": permission denied":    "noexec", // found, but not on any PATH as a program
		"chdir /secret: permission denied":           "check command and workdir",
		"exec: \"trian\": executable file not found": "check command and workdir",
	} {
		if v := Classify(Evidence{Start: start}); v.Class != class.Start || !strings.Contains(advised(v), want) || !strings.HasSuffix(v.Message, start) {
			t.Errorf("%s: %q, %q", start, v.Message, advised(v))
		}
	}
}
