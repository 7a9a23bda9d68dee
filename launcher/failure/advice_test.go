package failure

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/evidence"
	"github.com/muster-dev/muster/launcher/failure/class"
)

func TestErrorsThatManyMeetComeWithWhatHelps(t *testing.T) {
	for last, want := range map[string]string{
		"OSError: [Errno 24] Too many open files: '/data/7.tar'":                                       "set_sharing_strategy",
		"RuntimeError: Too many open files. Communication with the workers is no longer possible.":     "LimitNOFILE",
		"RuntimeError: received 0 items of ancdata":                                                    "set_sharing_strategy",
		"torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device": "get_arch_list",
		"AssertionError: Torch not compiled with CUDA enabled":                                         "for CPUs",
		"ValueError: x": "last lines",
	} {
		if v := Classify(wrote(traceback(last))); v.Class != class.UserError || !strings.Contains(advised(v), want) {
			t.Errorf("%s: %s, %q", last, v.Class, advised(v))
		}
	}
}

func TestRefusedMemoryIsNotCalledAFullHost(t *testing.T) {
	still := evidence.Memory{HostBefore: count(7), HostAfter: count(7)}
	grew := evidence.Memory{CgroupBefore: count(0), CgroupAfter: count(1)}
	for _, last := range []string{"MemoryError", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 29.8 TiB for an array", "OSError: [Errno 12] Cannot allocate memory"} {
		for name, c := range map[string]struct {
			memory evidence.Memory
			limit  bool
		}{"nothing is known": {evidence.Memory{}, true}, "nobody was killed": {still, true}, "the cgroup was full": {grew, false}} {
			e := wrote(traceback(last))
			e.Memory = c.memory
			v := Classify(e)
			if limit := strings.Contains(advised(v), "ulimit -v"); v.Class != class.OOMHost || !strings.Contains(v.Message, "was refused host memory") || limit != c.limit {
				t.Errorf("%s, %s: %s, %q, %q", last, name, v.Class, v.Message, advised(v))
			}
		}
	}
}
