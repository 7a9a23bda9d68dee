package nvidia

import (
	"path"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// FabricManager is what is known of nvidia-fabricmanager, which machines with NVSwitches
// need. Empty is not known.
type FabricManager struct {
	State   string `json:"state,omitempty"`   // "active", "inactive" or "not installed"
	Version string `json:"version,omitempty"` // of its package
}

// States of the fabric manager.
const (
	Active       = "active"
	Inactive     = "inactive"
	NotInstalled = "not installed"
)

const (
	unit    = "nvidia-fabricmanager.service"
	program = "/usr/bin/nv-fabricmanager"
	// command is what the kernel keeps of the program's name (TASK_COMM_LEN).
	command = "nv-fabricmanage"
)

// FindFabricManager looks for its process: in its unit's cgroup, and then among all, since
// an operator of Kubernetes runs it in a container. That it does not run is only told
// where all of the machine's processes can be seen: from a container, whose process numbers
// are its own (ownPIDs), and with hidden processes (hidepid of proc_pid(5)) they cannot.
func FindFabricManager(root hostfs.Root, ownPIDs bool) FabricManager {
	installed := root.Exists(program)
	m := FabricManager{State: Inactive}
	if installed {
		m.Version = packaged(root.Read("/var/lib/dpkg/status"))
	}
	switch {
	case inItsUnit(root), isRunning(root):
		m.State = Active
	case ownPIDs || root.Read("/proc/1/comm") == "":
		m.State = ""
	case !installed && !hasUnit(root):
		m.State = NotInstalled
	}
	return m
}

// inItsUnit looks into the unit's cgroup, of version 2 or 1.
func inItsUnit(root hostfs.Root) bool {
	for _, tree := range []string{"", "/systemd", "/unified"} {
		if root.Read(path.Join("/sys/fs/cgroup", tree, "system.slice", unit, "cgroup.procs")) != "" {
			return true
		}
	}
	return false
}

func isRunning(root hostfs.Root) bool {
	for _, name := range root.Names("/proc") {
		if name[0] >= '0' && name[0] <= '9' && root.Read("/proc/"+name+"/comm") == command {
			return true
		}
	}
	return false
}

func hasUnit(root hostfs.Root) bool {
	for _, dir := range []string{"/etc", "/run", "/usr/lib", "/lib"} {
		if root.Exists(dir + "/systemd/system/" + unit) {
			return true
		}
	}
	return false
}

// packaged finds the version in the list of Debian's packages (dpkg(1)): paragraphs, of
// which one has Package: nvidia-fabricmanager-550 (newer ones without a number) and
// Version: 550.54.15-1. RPM keeps its list where only its library reads it.
func packaged(status string) string {
	const name = "\nPackage: nvidia-fabricmanager"
	status = "\n" + status
	for {
		_, rest, found := strings.Cut(status, name)
		if !found {
			return ""
		}
		paragraph, next, _ := strings.Cut(rest, "\n\n")
		branch, fields, _ := strings.Cut(paragraph, "\n")
		_, version, hasVersion := strings.Cut("\n"+fields, "\nVersion: ")
		isIt := strings.Trim(branch, "-0123456789") == "" // not -dev
		if isIt && hasVersion && strings.Contains(fields, "Status: install ok installed") {
			version, _, _ = strings.Cut(version, "\n")
			version, _, _ = strings.Cut(version, "-")
			return version
		}
		status = "\n" + next
	}
}
