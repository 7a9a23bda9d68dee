package failure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

// What PyTorch 2.15 for CPUs wrote when each of these was done to it: two ranks with gloo,
// one of which ended, slept or raised; a port that was taken; data loaders.
func TestRealPyTorchFailuresHaveTheirRightClasses(t *testing.T) {
	for name, want := range map[string]struct{ class, where string }{
		"host-memory": {class.OOMHost, "<string>:2"}, "peer-died": {class.GlooRemote, "g.py:12"}, "dataloader-killed": {class.OOMHost, "w.py:8"},
		"dataloader-error": {class.UserError, "w2.py:5 in __getitem__"}, "nobody-listens": {class.RendezvousTimeout, ""}, "port-taken": {class.PortInUse, "g.py:4"},
		"gloo-timeout": {class.GlooTimeout, "g.py:12"}, "peer-timed-out": {class.GlooRemote, "g.py:12"}, "peer-raised": {class.GlooRemote, "g.py:12"}, "raised": {class.UserError, "g.py:11"},
	} {
		words, err := os.ReadFile(filepath.Join("testdata/torch", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if v := Classify(Evidence{Code: 1, Worker: evidence.Worker{Stderr: words}}); v.Class != want.class || v.Where != want.where {
			t.Errorf("%s: %s at %q, want %s at %q", name, v.Class, v.Where, want.class, want.where)
		}
	}
}
