//go:build linux

package endtoend

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// daemonOnHost starts a daemon of MPS as people do. Without a folder it is where CUDA looks.
func daemonOnHost(t *testing.T, h *testbed.Host, folder, devices string) testbed.Process {
	t.Helper()
	script := "exec " + gpus.MPSControl + " -d"
	if folder != "" {
		script = fmt.Sprintf("mkdir -p %[1]s; export CUDA_MPS_PIPE_DIRECTORY=%[1]s CUDA_MPS_LOG_DIRECTORY=%[1]s; %[2]s", folder, script)
	}
	if devices != "" {
		script = "export CUDA_VISIBLE_DEVICES=" + devices + "; " + script
	}
	if out, errs, err := h.Run(t.Context(), "sh", "-c", script); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	control, _ := mpsProcesses(t, h)
	if len(control) != 1 {
		t.Fatalf("daemons: %v", control)
	}
	t.Cleanup(func() { _ = h.Kill(control[0].PID, syscall.SIGKILL) }) // it may be gone
	return control[0]
}

func TestStaleStateOfMPSIsRecognised(t *testing.T) {
	bed := theMPSHosts(t)
	h := bed.Host("shared")
	clean := func() { _, _, _ = h.Run(t.Context(), "rm", "-rf", "/tmp/nvidia-mps", "/run/stale") }
	t.Cleanup(clean)
	t.Run("sockets of a daemon that is no more", func(t *testing.T) {
		defer clean()
		u := newUser(t, bed)
		d := daemonOnHost(t, h, "", "0")
		signalTo(t, h, []testbed.Process{d}, syscall.SIGKILL)
		u.run("run", u.sharingJob("own", "-for 300ms", "    devices = [0]", "    ranks_per_gpu = 2")).exits(0).says("left its folder /tmp/nvidia-mps")
		u.run("run", u.sharingJob("theirs", "-for 300ms", "    devices = [0]", "    ranks_per_gpu = 2\n    daemon = \"existing\"")).exits(75).says("are the sockets of one that has ended")
		if left := onHost(h, "/tmp/nvidia-mps/control"); len(left) != 1 {
			t.Error("what others have left was not left alone")
		}
	})
	t.Run("a daemon whose sockets are gone", func(t *testing.T) {
		defer clean()
		u := newUser(t, bed)
		d := daemonOnHost(t, h, "/run/stale", "1")
		if _, _, err := h.Run(t.Context(), "rm", "-rf", "/run/stale"); err != nil {
			t.Fatal(err)
		}
		u.run("run", u.sharingJob("own", "-for 300ms", "    devices = [1]", "    ranks_per_gpu = 2")).exits(75).says("its folder has been removed", fmt.Sprintf("kill %d", d.PID))
		u.run("run", u.sharingJob("theirs", "-for 300ms", "    devices = [1]", "    ranks_per_gpu = 2\n    daemon = \"existing\"\n    pipe_directory = \"/run/stale\"")).exits(75).says("has lost its folder")
		u.run("run", u.sharingJob("beside", "-for 300ms", "    devices = [2]", "    ranks_per_gpu = 2")).exits(0)
	})
	t.Run("a daemon that takes every program for its client", func(t *testing.T) {
		defer clean()
		u := newUser(t, bed)
		daemonOnHost(t, h, "", "")
		path := u.gpuJob([]string{"shared"}, "    devices = [2]")
		u.run("plan", path).exits(0).prints("will be clients of the MPS daemon of root in /tmp/nvidia-mps")
	})
}
