//go:build linux

package facts

import (
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
	"github.com/muster-dev/muster/plugins/gpu"
)

func TestOwnersAreThoseOfTheProcessesThatTheDriverMeans(t *testing.T) {
	self := strconv.Itoa(os.Getuid())
	gpus := []gpu.GPU{{Processes: []gpu.Process{{PID: 10, Name: "/usr/bin/python3"}, {PID: 11, Name: "python"}, {PID: 12, Name: "gone"}}}}
	files := map[string]string{"proc/10/cmdline": "/opt/bin/python3\x00train.py\x00", "proc/11/cmdline": "bash\x00", "proc/self/ns/pid": "-> " + firstPIDNamespace}
	if got := Owners(hostfstest.Tree(t, files), gpus); !reflect.DeepEqual(got, map[int]string{10: self, 11: self}) {
		t.Errorf("users that only a directory knows: %v", got)
	}
	files["etc/passwd"] = "root:x:x\nann:x:" + self + ":100::/home/ann:/bin/sh\n"
	files["proc/self/ns/pid"] = "-> pid:[4026532000]"
	if got := Owners(hostfstest.Tree(t, files), gpus); !reflect.DeepEqual(got, map[int]string{10: "ann"}) {
		t.Errorf("from a namespace where pid 11 is another process: %v", got)
	}
}

func TestProcessNumbersOfANamespaceAreItsOwn(t *testing.T) {
	for link, want := range map[string]bool{"-> " + firstPIDNamespace: false, "-> pid:[4026532000]": true} {
		if got := ownPIDs(hostfstest.Tree(t, map[string]string{"proc/self/ns/pid": link})); got != want {
			t.Errorf("%s: %v", link, got)
		}
	}
	if ownPIDs(hostfstest.Tree(t, nil)) {
		t.Error("what is not told counts")
	}
}
