//go:build linux

package testbed

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
)

// Host is one host of a bed. Its methods may be called at the same time, but
// Stop and Start of one host only one after the other.
type Host struct {
	Name string
	// Addr is its address on the bed's network, which the machine reaches.
	Addr netip.Addr
	// SecondAddr is its address on the second network, if there is one.
	SecondAddr netip.Addr
	// Port is where its sshd listens.
	Port int
	// Home is root's home on the host, as the machine sees it.
	Home string

	bed   *Bed
	index int
	opts  HostOptions
	ports []string // names of its links at the bridges
	keys  []hostKey

	mu     sync.Mutex
	init   *initProcess // nil while it is off
	bootID string

	gpuMu sync.Mutex
	gpu   gpuState
}

func (b *Bed) host(i int, opts HostOptions) *Host {
	h := &Host{
		Name:  opts.Name,
		Addr:  b.net.addr(mainNet, hostOctet+i),
		Port:  opts.Port,
		bed:   b,
		index: i,
		opts:  opts,
		ports: []string{fmt.Sprintf("h%d", i)},
	}
	if opts.GPUs != nil {
		h.gpu.scenario = opts.GPUs.Clone()
	}
	h.Home = filepath.Join(h.dir(), "home")
	if b.opts.SharedHome {
		h.Home = filepath.Join(b.Dir, "home")
	}
	if b.opts.SecondNet {
		h.SecondAddr = b.net.addr(secondNet, hostOctet+i)
		h.ports = append(h.ports, fmt.Sprintf("h%dx", i))
	}
	return h
}

// dir is the host's folder on the machine.
func (h *Host) dir() string { return filepath.Join(h.bed.Dir, "hosts", h.Name) }

// Log is the file with what its init and sshd say.
func (h *Host) Log() string { return filepath.Join(h.dir(), "log") }

// container names the switch's end of the link under docker0.
func (h *Host) container() string { return fmt.Sprintf("c%d", h.index) }

// NIC is the name of its interface on the bed's network.
func (h *Host) NIC() string { return h.opts.NIC }

// BootID is the boot_id of its present or last boot.
func (h *Host) BootID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bootID
}

// PID is the host's init, as the machine numbers it; 0 while the host is off.
func (h *Host) PID() int {
	if init := h.current(); init != nil {
		return init.pid()
	}
	return 0
}

// Start powers the host on after Stop: same name, addresses, keys, home and
// /var/tmp, new boot_id, nothing of what was running or in /tmp, /run or /etc.
func (h *Host) Start(ctx context.Context) error {
	if h.running() {
		return fmt.Errorf("testbed: %s is on", h.Name)
	}
	if err := h.bed.powerOn(ctx, []*Host{h}); err != nil {
		h.Stop()
		return fmt.Errorf("testbed: %w", err)
	}
	return nil
}

// Stop powers the host off at once: all its processes are killed, and gone when
// Stop returns. Its links go first, because a host without power sends no FINs.
func (h *Host) Stop() error {
	if !h.running() {
		return nil
	}
	h.bed.wire.unplug(h)
	return h.kill()
}

// kill is Stop without care for the links.
func (h *Host) kill() error {
	init := h.current()
	if init == nil {
		return nil
	}
	defer h.setInit(nil)
	if err := init.kill(); err != nil {
		return fmt.Errorf("testbed: stop %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	order := h.order()
	h.mu.Lock()
	h.bootID = strings.TrimSpace(order.BootID)
	h.mu.Unlock()
	if err := h.current().boot(ctx, order); err != nil {
		return fmt.Errorf("%w\nits log ends with:\n%s", err, h.logTail())
	}
	return h.bootGPUs()
}

func (h *Host) current() *initProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.init
}

func (h *Host) setInit(init *initProcess) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.init = init
}

// running reports whether the host is on. A host whose init was killed from
// outside counts as on until Stop.
func (h *Host) running() bool { return h.current() != nil }
