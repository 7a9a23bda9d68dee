package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/launcher/config"
)

func TestCollective_TheJobsOwnPythonMeasures(t *testing.T) {
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

func TestCollective_ARunThatMeasuresTooLongIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan Request, 1)
		requests, stop := withDeadline(asked, time.Minute)
		defer stop()
		asked <- Request{Stop: true, Reason: "Ctrl-C"}
		if r := <-requests; r.Reason != "Ctrl-C" {
			t.Errorf("%+v", r)
		}
		if r := <-requests; !r.Stop || !r.Kill {
			t.Errorf("%+v", r)
		}
	})
}
