//go:build linux

package facts

import (
	"os"
	"strconv"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

func TestDaemonsOfMPSAreToldFromWhatTalksToThem(t *testing.T) {
	control := func(args, environ string) map[string]string {
		return map[string]string{"comm": "nvidia-cuda-mps\n", "cmdline": "/usr/bin/nvidia-cuda-mps-control\x00" + args, "environ": environ}
	}
	files := map[string]string{"etc/passwd": "ann:x:" + strconv.Itoa(os.Getuid()) + ":0::/:/bin/sh\n", "run/mps/control": "", "opt/bin/nvidia-cuda-mps-control": "x"}
	for pid, process := range map[int]map[string]string{
		10: control("-d\x00", "CUDA_MPS_PIPE_DIRECTORY=/run/mps\x00CUDA_VISIBLE_DEVICES=1\x00"),
		11: control("", ""), // a command for one
		12: control("-f\x00", "MUSTER_RUN=llama-7f3a\x00CUDA_MPS_PIPE_DIRECTORY=/tmp/gone\x00"),
		13: {"comm": "nvidia-cuda-mps\n", "cmdline": "nvidia-cuda-mps-server\x00"},
		14: {"comm": "python\n", "cmdline": "python\x00-d\x00"},
		15: control("-d\x00", ""), // another's, which does not tell its environment
	} {
		for name, text := range process {
			files["proc/"+strconv.Itoa(pid)+"/"+name] = text
		}
	}
	root := hostfstest.Tree(t, files)
	if err := os.Chmod(string(root)+"/opt/bin/nvidia-cuda-mps-control", 0o755); err != nil {
		t.Fatal(err)
	}
	got := LookForMPS(root, map[string]string{"PATH": "/bin:/opt/bin"})
	if got.Program != "/opt/bin/nvidia-cuda-mps-control" || len(got.Daemons) != 3 {
		t.Fatalf("%+v", got)
	}
	first, second, third := got.Daemons[0], got.Daemons[1], got.Daemons[2]
	if first.PID != 10 || first.User != "ann" || !first.Told || first.Pipe != "/run/mps" || first.Devices == nil || *first.Devices != "1" || first.Lost {
		t.Errorf("%+v", first)
	}
	if second.PID != 12 || second.Run != "llama-7f3a" || second.Devices != nil || !second.Lost {
		t.Errorf("%+v", second)
	}
	if third.PID != 15 || third.Told || third.Pipe != "" {
		t.Errorf("%+v", third)
	}
}

func TestSocketsWithoutADaemonAreLeftOvers(t *testing.T) {
	root := hostfstest.Tree(t, map[string]string{"tmp/nvidia-mps/control": "", "run/mps/control": ""})
	if got := LookForMPS(root, nil).Left; got == "" {
		t.Error("the sockets in CUDA's own folder are not seen")
	}
	if got := LookForMPS(root, map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/run/none"}).Left; got != "" {
		t.Error(got)
	}
	served := hostfstest.Tree(t, map[string]string{"run/mps/control": "", "proc/9/comm": "nvidia-cuda-mps", "proc/9/cmdline": "nvidia-cuda-mps-control\x00-d\x00", "proc/9/environ": "CUDA_MPS_PIPE_DIRECTORY=/run/mps\x00"})
	if got := LookForMPS(served, map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}).Left; got != "" {
		t.Errorf("a daemon serves them: %s", got)
	}
}
