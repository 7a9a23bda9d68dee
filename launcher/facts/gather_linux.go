package facts

import (
	"os"
	"os/user"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where the host's files are looked for; tests give another.
type Root string

func (r Root) read(path string) string {
	text, err := os.ReadFile(string(r) + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Gather collects the facts of this host. It takes a few milliseconds and waits
// for nothing outside the machine.
func Gather(root Root) Host {
	hostname, _ := os.Hostname()
	home, _ := os.UserHomeDir()
	h := Host{
		ID:             Identity(root),
		MachineID:      root.read("/etc/machine-id"),
		Hostname:       hostname,
		OS:             runtime.GOOS,
		Arch:           runtime.GOARCH,
		Kernel:         kernel(),
		User:           username(),
		Home:           home,
		CPUs:           cpus(root),
		Memory:         memoryTotal(root.read("/proc/meminfo")),
		NICs:           nics(root),
		HostnameAddrs:  addressesOf(hostname, root.read("/etc/hosts")),
		ReachedAt:      reachedAt(os.Getenv("SSH_CONNECTION")),
		Logind:         logind(root, username(), os.Getuid()),
		EphemeralPorts: ephemeralPorts(root.read("/proc/sys/net/ipv4/ip_local_port_range")),
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
