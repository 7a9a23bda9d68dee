package container

import (
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs/hostfstest"
)

func TestAContainerIsKnownByWhatItsMakerLeft(t *testing.T) {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"} {
		t.Setenv(name, "")
	}
	root := "100 90 0:50 %s / rw,relatime - overlay overlay rw\n"
	for _, test := range []struct{ path, text, want string }{
		{".dockerenv", "", "docker"},
		{"run/.containerenv", "", "podman"},
		{"var/run/secrets/kubernetes.io/serviceaccount/token", "", "kubernetes"},
		{".singularity.d/runscript", "", "apptainer"},
		{"proc/1/environ", "TERM=linux\x00container=lxc\x00", "lxc"},
		{"run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"},
		{"proc/self/mountinfo", "99 90 0:5 / /proc rw - proc proc rw\n" + "100 90 8:1 /raid/enroot/data/ann/pyxis_77.0 / rw - ext4 /dev/sda rw\n", "enroot (pyxis)"},
		{"proc/self/mountinfo", "100 90 8:1 /home/ann/.local/share/enroot/nemo / rw - ext4 /dev/sda rw\n", "enroot"},
		{"proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-0123.scope\n", "kubernetes"},
		{"proc/1/cgroup", "4:memory:/docker/0123\n", "docker"},
		{"proc/self/cgroup", "0::/system.slice/docker.service\n", ""},
		{"proc/self/mountinfo", root, ""},
	} {
		if got := Kind(hostfstest.Tree(t, map[string]string{test.path: test.text})); got != test.want {
			t.Errorf("%s %q: %q", test.path, test.text, got)
		}
	}
}
