//go:build linux

package testbed

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// maxHosts is what the addresses of one bed's network allow.
const maxHosts = 200

// Options describes a bed. The zero value is one ordinary host.
type Options struct {
	// Hosts is the number of hosts, 1 if zero.
	Hosts int
	// Names of the hosts in order; those missing are called node1, node2, ...
	Names []string
	// SharedHome gives all hosts the same home of root, as NFS would.
	SharedHome bool
	// User is the name of somebody beside root who may log in, with UserID and a home of
	// their own on each host; "": there is nobody.
	User string
	// Docker0 gives every host an interface docker0 with 172.17.0.1/16, up and the
	// same everywhere.
	Docker0 bool
	// SecondNet gives every host a second interface (eth1 unless HostOptions says
	// otherwise) in another subnet, which the machine does not reach.
	SecondNet bool
	// PeerNames lets each host resolve the names of the others by /etc/hosts.
	PeerNames bool
	// Keep lists absolute paths which the hosts see as the machine has them, read
	// only, although their folder is private (/root, /tmp, /run, ...).
	Keep []string
	// KeepRW is Keep with writing allowed.
	KeepRW []string
	// SSHDConfig holds lines for sshd_config; they win over the testbed's own.
	SSHDConfig []string
	// KnownHostKeyTypes are the host keys in the client's known_hosts, of "rsa",
	// "ecdsa" and "ed25519"; nil means all of them, empty none.
	KnownHostKeyTypes []string
	// GPUs are those of every host; nil: hosts have none, and are as the machine is.
	GPUs *gpus.Scenario
	// Each, if set, is called for every host to change its options.
	Each func(i int, h *HostOptions)
}

// HostOptions describes one host; Options gives the defaults.
type HostOptions struct {
	Name string
	// NIC is the name of the interface on the bed's network: eth0.
	NIC string
	// SecondNIC is the name of the interface on the second network: eth1.
	SecondNIC string
	// Port is where sshd listens: 22.
	Port int
	// Docker0, SSHDConfig, KnownHostKeyTypes: see Options.
	Docker0           bool
	SSHDConfig        []string
	KnownHostKeyTypes []string
	// ClockOffset moves the host's monotonic and boot-time clocks against the
	// machine's; no namespace moves the wall clock. The sum must not be negative.
	ClockOffset time.Duration
	// MachineID is the text of /etc/machine-id; hosts that were cloned share it.
	MachineID string
	// GPUs are the host's; see Host.SetGPUs.
	GPUs *gpus.Scenario
}

// expand returns the options of every host.
func (o Options) expand() ([]HostOptions, error) {
	hosts := make([]HostOptions, max(o.Hosts, 1))
	if len(hosts) > maxHosts || len(o.Names) > len(hosts) {
		return nil, fmt.Errorf("%d hosts and %d names: at most %d hosts, and no more names than hosts",
			len(hosts), len(o.Names), maxHosts)
	}
	for i := range hosts {
		hosts[i] = o.host(i)
		if o.Each != nil {
			o.Each(i, &hosts[i])
		}
		earlier := hosts[:i]
		if slices.ContainsFunc(earlier, func(h HostOptions) bool { return h.Name == hosts[i].Name }) {
			return nil, fmt.Errorf("two hosts are called %s", hosts[i].Name)
		}
	}
	for _, path := range slices.Concat(o.Keep, o.KeepRW) {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("keep %s: not an absolute path", path)
		}
	}
	return hosts, nil
}

func (o Options) host(i int) HostOptions {
	h := HostOptions{
		Name:              fmt.Sprintf("node%d", i+1),
		NIC:               "eth0",
		SecondNIC:         "eth1",
		Port:              22,
		Docker0:           o.Docker0,
		SSHDConfig:        slices.Clone(o.SSHDConfig),
		KnownHostKeyTypes: slices.Clone(o.KnownHostKeyTypes),
		MachineID:         randomHex(16),
		GPUs:              o.GPUs,
	}
	if i < len(o.Names) {
		h.Name = o.Names[i]
	}
	return h
}
