package facts

import (
	"os"
	"os/user"
	"runtime"
	"strings"

	"github.com/muster-dev/muster/launcher/facts/container"
	"github.com/muster-dev/muster/launcher/facts/nvidia"
	"github.com/muster-dev/muster/launcher/hostfs"
	"golang.org/x/sys/unix"
)

// Root is where the host's files are looked for; tests give another.
type Root = hostfs.Root

// Gather collects the facts of this host. It takes a few milliseconds and waits
// for nothing outside the machine.
func Gather(root Root) Host {
	hostname, _ := os.Hostname()
	home, _ := os.UserHomeDir()
	name := username()
	memory := meminfo(root.Read("/proc/meminfo"))
	spaces := measure(root, places(home))
	h := Host{
		ID:              Identity(root),
		MachineID:       root.Read("/etc/machine-id"),
		Hostname:        hostname,
		OS:              runtime.GOOS,
		Arch:            runtime.GOARCH,
		Kernel:          kernel(),
		User:            name,
		Home:            home,
		CPUs:            cpus(root),
		Memory:          memory["MemTotal"],
		MemoryAvailable: memory["MemAvailable"],
		NICs:            nics(root),
		HCAs:            hcas(root),
		Limits:          limits(),
		SharedMemory:    spaceFor(spaces, UseShared),
		Disk:            spaceFor(spaces, UseHome),
		Spaces:          distinct(spaces),
		Container:       container.Kind(root),
		Cgroup:          cgroup(root),
		OwnPIDs:         ownPIDs(root),
		Environ:         Telling(environMap(), nil),
		NCCLFiles:       ncclFiles(root, home),
		HostnameAddrs:   addressesOf(hostname, root.Read("/etc/hosts")),
		ReachedAt:       reachedAt(os.Getenv("SSH_CONNECTION")),
		Logind:          logind(root, name, os.Getuid()),
		IsRoot:          os.Geteuid() == 0,
		EphemeralPorts:  ephemeralPorts(root.Read("/proc/sys/net/ipv4/ip_local_port_range")),
	}
	h.Nodes = nodes(root, h.CPUs.Allowed)
	h.Verbs = verbs(root, h.HCAs)
	if len(h.HCAs) > 0 {
		h.PeerMemory = nvidia.PeerMemory(root, h.Kernel)
	}
	return h
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

func username() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

func environMap() map[string]string {
	all := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		all[name] = value
	}
	return all
}
