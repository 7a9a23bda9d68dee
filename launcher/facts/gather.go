//go:build linux

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
		System: System{
			ID: Identity(root), MachineID: root.Read("/etc/machine-id"), Hostname: hostname, OS: runtime.GOOS,
			Arch: runtime.GOARCH, Kernel: kernel(), User: name, Home: home, IsRoot: os.Geteuid() == 0,
			Container: container.Kind(root), OwnPIDs: ownPIDs(root), Logind: logind(root, name, os.Getuid()),
		},
		Machine: Machine{CPUs: cpus(root), Memory: memory["MemTotal"], MemoryAvailable: memory["MemAvailable"]},
		Network: Network{
			NICs: nics(root), HCAs: hcas(root), HostnameAddrs: addressesOf(hostname, root.Read("/etc/hosts")),
			ReachedAt:      reachedAt(os.Getenv("SSH_CONNECTION")),
			EphemeralPorts: ephemeralPorts(root.Read("/proc/sys/net/ipv4/ip_local_port_range")),
		},
		Storage: Storage{
			SharedMemory: spaceFor(spaces, UseShared), Disk: spaceFor(spaces, UseHome), Spaces: distinct(spaces),
		},
		Settings: Settings{
			Limits: limits(), Cgroup: cgroup(root), Environ: Telling(environMap(), nil),
			NCCLFiles: ncclFiles(root, home),
		},
	}
	h.Nodes = nodes(root, h.CPUs.Allowed)
	if len(h.HCAs) > 0 {
		h.Verbs, h.PeerMemory = verbs(root), nvidia.PeerMemory(root, h.Kernel)
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
