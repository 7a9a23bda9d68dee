//go:build linux

// Package claim keeps runs of muster on one host from taking the same GPUs and ports: a name in the
// kernel's abstract namespace of unix sockets for each, which the kernel lets go with the
// process that has it, whatever becomes of that. It holds among all users of a network
// namespace; containers with networks of their own do not see each other's.
package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names in the abstract namespace. That of a device is the lock; beside it stands one that
// says whose it is, for others to read in /proc/net/unix.
const (
	prefix   = "muster-gpu:"
	choosing = "muster-choosing"
	// longest is how many bytes a name may have: those of sun_path (unix(7)) less the zero
	// before it and the one that Go keeps behind it.
	longest = 106
)

// ErrTaken says that another run has the device.
var ErrTaken = errors.New("taken")

// Device takes a device for a run. The files that it returns are the claim: it lasts as
// long as somebody has them open. Its error is ErrTaken where another has it.
func Device(uuid, run string) ([]*os.File, error) {
	lock, err := bind(prefix + uuid)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", uuid, err)
	}
	label := prefix + uuid + "=" + run
	whose, err := bind(label[:min(len(label), longest)])
	if err != nil { // it only names the run
		return []*os.File{lock}, nil
	}
	return []*os.File{lock, whose}, nil
}

// Port takes a TCP port among muster's runs: a socket that is bound and does not listen yet
// keeps nobody with SO_REUSEADDR from it. The file that it returns is the claim, as that of a
// device. Its error is ErrTaken where another run has it.
func Port(port int) (*os.File, error) {
	lock, err := bind(fmt.Sprintf("muster-port-%d", port))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrTaken
	}
	if err != nil {
		return nil, fmt.Errorf("claim port %d: %w", port, err)
	}
	return lock, nil
}

// Holders are the runs that hold devices now, by the device's UUID. A run's name may be
// cut short.
func Holders() map[string]string {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	return holders(string(table))
}

// holders reads proc_net_unix(5): the last column is the name, where "@" stands for the
// zero byte of an abstract one.
func holders(table string) map[string]string {
	var found map[string]string
	for line := range strings.Lines(table) {
		_, label, ours := strings.Cut(line, "@"+prefix)
		uuid, run, named := strings.Cut(strings.TrimSpace(label), "=")
		if !ours || !named {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[uuid] = run
	}
	return found
}

// Choosing waits until no other launch is between looking at this host's devices and
// claiming some, and keeps others from it until the file is closed. It waits no longer
// than ctx: two launches over several hosts may wait for each other. Then it returns nil,
// and the claims themselves decide.
func Choosing(ctx context.Context) *os.File {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		turn, err := bind(choosing)
		if err == nil {
			return turn
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func bind(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
