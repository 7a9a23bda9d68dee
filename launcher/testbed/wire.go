//go:build linux

package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// wire is the cabling of a bed: bridges in a network namespace that only the
// bed's thread is in, a port for each nic of a host, and the machine's uplink.
type wire struct {
	net    *subnet
	second bool
	thread *thread
}

// newWire makes the bridges and the uplink.
func newWire(net *subnet, second bool) (*wire, error) {
	t, err := newThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	w := &wire{net: net, second: second, thread: t}
	if err := w.build(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *wire) build() error {
	up := w.net.uplink()
	script := []string{
		"link set lo up",
		"link add br0 type bridge",
		fmt.Sprintf("addr add %s/24 dev br0", w.net.addr(mainNet, bridgeOctet)),
		"link set br0 up",
		fmt.Sprintf("link add uplink type veth peer name %s netns %d", up, os.Getpid()),
		"link set uplink master br0 up",
	}
	if w.second {
		script = append(script, "link add br1 type bridge", "link set br1 up")
	}
	if err := w.ip(script...); err != nil {
		return err
	}
	if err := w.thread.do(answerUnreachable); err != nil {
		return err
	}
	// On the machine itself: no IPv6, nothing but the one address.
	return ipBatch(
		fmt.Sprintf("link set %s addrgenmode none", up),
		fmt.Sprintf("addr add %s/24 dev %s", w.net.addr(mainNet, machineOctet), up),
		fmt.Sprintf("link set %s up", up))
}

// answerUnreachable lets the bridge, which is the hosts' default gateway, say
// "network unreachable" for the rest of the world instead of swallowing packets.
func answerUnreachable() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// plug connects new hosts: it makes their nics, which are down and without address.
func (w *wire) plug(hosts ...*Host) error {
	var script []string
	for _, h := range hosts {
		pid := h.init.pid()
		script = append(script, w.cable(h.ports[0], h.opts.NIC, "br0", w.net.mac(mainNet, h.index), pid)...)
		if w.second {
			script = append(script, w.cable(h.ports[1], h.opts.SecondNIC, "br1", w.net.mac(secondNet, h.index), pid)...)
		}
		if h.opts.Docker0 {
			// The far end of a "container", so that docker0 has a carrier.
			script = append(script,
				fmt.Sprintf("link add %s type veth peer name veth1a2b3c netns %d", h.container(), pid),
				fmt.Sprintf("link set %s up", h.container()))
		}
	}
	return w.ip(script...)
}

func (w *wire) cable(port, nic, bridge, mac string, pid int) []string {
	return []string{
		fmt.Sprintf("link add %s type veth peer name %s address %s netns %d", port, nic, mac, pid),
		fmt.Sprintf("link set %s master %s up", port, bridge),
	}
}

// unplug removes a host's links. They would go with its namespace, but only some
// time after it, and the next boot needs their names.
func (w *wire) unplug(h *Host) {
	var script strings.Builder
	for _, port := range append([]string{h.container()}, h.ports...) {
		fmt.Fprintf(&script, "link del %s\n", port)
	}
	w.thread.do(func() error {
		// Fails where the kernel was quicker, and goes on.
		return feed(script.String(), "ip", "-force", "-batch", "-")
	})
}

// ip runs ip commands among the bridges.
func (w *wire) ip(script ...string) error {
	return w.thread.do(func() error { return ipBatch(script...) })
}

// close removes the uplink at once and leaves the rest to the namespace's end.
func (w *wire) close() {
	w.ip("link del uplink")
	w.thread.end()
}

// ipBatch runs ip commands in the network namespace of the calling thread.
func ipBatch(script ...string) error {
	return feed(strings.Join(script, "\n")+"\n", "ip", "-batch", "-")
}

// feed runs a system program with input in the namespaces of the calling thread.
func feed(input, program string, args ...string) error {
	cmd := exec.Command(tool(program), args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
