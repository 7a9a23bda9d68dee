package facts

import (
	"os"
	"os/user"
	"runtime"

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
	h := Host{
		ID:             Identity(root),
		MachineID:      root.Read("/etc/machine-id"),
		Hostname:       hostname,
		OS:             runtime.GOOS,
		Arch:           runtime.GOARCH,
		Kernel:         kernel(),
		User:           name,
		Home:           home,
		CPUs:           cpus(root),
		Memory:         meminfo(root.Read("/proc/meminfo"))["MemTotal"],
		NICs:           nics(root),
		HCAs:           hcas(root),
		Limits:         limits(),
		SharedMemory:   space(root, "/dev/shm"),
		Disk:           space(root, home),
		Container:      container(root),
		Cgroup:         cgroup(root),
		Environ:        environ(os.LookupEnv),
		HostnameAddrs:  addressesOf(hostname, root.Read("/etc/hosts")),
		ReachedAt:      reachedAt(os.Getenv("SSH_CONNECTION")),
		Logind:         logind(root, name, os.Getuid()),
		EphemeralPorts: ephemeralPorts(root.Read("/proc/sys/net/ipv4/ip_local_port_range")),
	}
	h.Nodes = nodes(root, h.CPUs.Allowed)
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

// environ are those of DeviceVariables that are set, also to nothing: an empty
// CUDA_VISIBLE_DEVICES hides every GPU.
func environ(lookup func(string) (string, bool)) map[string]string {
	var set map[string]string
	for _, name := range DeviceVariables {
		if value, is := lookup(name); is {
			if set == nil {
				set = map[string]string{}
			}
			set[name] = value
		}
	}
	return set
}
