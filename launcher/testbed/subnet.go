//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
)

// subnet is the number of a bed: it fixes the bed's networks, link names and
// folder names, and belongs to one process at a time.
type subnet struct {
	number int
	lock   net.Listener
}

// claimSubnet takes the lowest number that no other bed and no interface of this
// machine has. The lock is an abstract socket: the kernel drops it with the process.
func claimSubnet() (*subnet, error) {
	for number := range 256 {
		lock, err := net.Listen("unix", fmt.Sprintf("@muster-testbed/10.213.%d", number))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock a network number: %w", err)
		}
		s := &subnet{number, lock}
		if s.free() {
			return s, nil
		}
		lock.Close()
	}
	return nil, errors.New("all networks 10.213.0.0/24 to 10.213.255.0/24 are in use")
}

func (s *subnet) release() { s.lock.Close() }

// free reports whether the machine has neither the bed's link (that of a bed
// whose process died a moment ago lingers) nor an address in its network.
func (s *subnet) free() bool {
	if _, err := net.InterfaceByName(s.uplink()); err == nil {
		return false
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Overlaps(s.prefix(mainNet)) {
			return false
		}
	}
	return true
}

// The two networks of a bed: the second octet of their addresses.
const (
	mainNet   = 213
	secondNet = 214
)

// The last octets of the machine, the bridge and the first host.
const (
	machineOctet = 1
	bridgeOctet  = 254
	hostOctet    = 11
)

func (s *subnet) addr(network, octet int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(network), byte(s.number), byte(octet)})
}

func (s *subnet) prefix(network int) netip.Prefix {
	return netip.PrefixFrom(s.addr(network, 0), 24)
}

// mac is the same each time a host starts, so that nobody holds a stale one.
func (s *subnet) mac(network, host int) string {
	return fmt.Sprintf("02:6d:62:%02x:%02x:%02x", network, s.number, host)
}

// uplink is the name of the machine's end of the link into the bed.
func (s *subnet) uplink() string { return fmt.Sprintf("testbed%d", s.number) }

// folder makes the bed's folder, and removes what killed beds of this number
// left: nobody else uses the number now.
func (s *subnet) folder() (string, error) {
	pattern := fmt.Sprintf("muster-testbed-%d-*", s.number)
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	for _, dir := range old {
		os.RemoveAll(dir)
	}
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
