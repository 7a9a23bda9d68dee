// Package container tells by files and variables what kind of container a host is.
package container

import (
	"os"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// Kind says what kind of container this is, "" for none. What tells most exactly
// comes first: a Kubernetes pod may be made by docker, an Apptainer image come from it.
func Kind(root hostfs.Root) string {
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"kubernetes", os.Getenv("KUBERNETES_SERVICE_HOST") != "" || root.Exists("/var/run/secrets/kubernetes.io")},
		{"apptainer", os.Getenv("APPTAINER_CONTAINER") != "" || os.Getenv("SINGULARITY_CONTAINER") != "" || root.Exists("/.singularity.d")},
		{"docker", root.Exists("/.dockerenv")},
		{"podman", root.Exists("/run/.containerenv")},
	} {
		if c.is {
			return c.name
		}
	}
	if name := initContainer(root); name != "" {
		return name
	}
	if name := mountedFrom(root.Read("/proc/self/mountinfo")); name != "" {
		return name
	}
	return grouped(root.Read("/proc/self/cgroup") + "\n" + root.Read("/proc/1/cgroup"))
}

// initContainer is what the container's maker told its init in the variable container
// (systemd.io/CONTAINER_INTERFACE), from the environment of init, which only its owner may
// read, or from the file in which systemd keeps it for the others.
func initContainer(root hostfs.Root) string {
	for variable := range strings.SplitSeq(root.Read("/proc/1/environ"), "\x00") {
		if name, is := strings.CutPrefix(variable, "container="); is && name != "" {
			return name
		}
	}
	return root.Read("/run/systemd/container")
}

// mountedFrom tells enroot, which leaves no mark, by the folder that the root is: field 4
// of the line whose mount point is / (proc_pid_mountinfo(5)). Slurm's pyxis names it.
func mountedFrom(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] != "/" {
			continue
		}
		switch from := fields[3]; {
		case strings.Contains(from, "pyxis_"):
			return "enroot (pyxis)"
		case strings.Contains(from, "/enroot"):
			return "enroot"
		}
	}
	return ""
}

// grouped tells a container by the cgroup that its maker put it in. A private cgroup
// namespace hides that.
func grouped(cgroups string) string {
	for _, hint := range []struct{ part, name string }{
		{"/kubepods", "kubernetes"},
		{"/docker/", "docker"}, {"/docker-", "docker"},
		{"/libpod-", "podman"}, {"/crio-", "cri-o"}, {"/cri-containerd-", "containerd"},
		{"/lxc.payload", "lxc"}, {"/lxc/", "lxc"},
	} {
		if strings.Contains(cgroups, hint.part) {
			return hint.name
		}
	}
	return ""
}
