package launcher

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/config"
)

func TestTheJobsOwnPythonMeasures(t *testing.T) {
	for _, test := range []struct {
		python  string
		command []string
		want    string
	}{
		{"~/venv/bin/python", []string{"python", "x.py"}, "~/venv/bin/python"},
		{"", []string{"venv/bin/python3.11", "x.py"}, "venv/bin/python3.11"},
		{"", []string{"accelerate", "launch"}, "python3"}, // what setup leaves in PATH
	} {
		if got := pythonOf(&config.Job{Python: test.python, Command: test.command}); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestARunThatMeasuresTooLongIsEnded(t *testing.T) {
	asked := make(chan Wish, 1)
	wishes, stop := untilLate(asked, 50*time.Millisecond)
	defer stop()
	asked <- Wish{Stop: true, Reason: "Ctrl-C"}
	if w := <-wishes; w.Reason != "Ctrl-C" {
		t.Errorf("%+v", w)
	}
	select {
	case w := <-wishes:
		if !w.Stop || !w.Kill {
			t.Errorf("%+v", w)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}
