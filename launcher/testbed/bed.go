//go:build linux

package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// bootTime bounds how long a host may take until its sshd listens.
const bootTime = 30 * time.Second

// Bed is a set of running hosts and the network between them.
type Bed struct {
	// Hosts in the order of their names.
	Hosts []*Host
	// Dir holds all files of the bed; Close removes it.
	Dir string
	// Shared is a folder that the machine and all hosts see under this same path.
	Shared string
	// ClientHome is a home for programs that connect to the hosts: its .ssh has a
	// config, known_hosts and a key that every host accepts.
	ClientHome string
	// SSHConfig is the config in there, for ssh -F: OpenSSH ignores $HOME.
	SSHConfig string

	opts    Options
	net     *subnet
	wire    *wire
	weather weather
	close   sync.Once
}

// Start makes a bed and returns when all its hosts' sshd's listen. ctx bounds the
// start only: the bed lives until Close, or until the process ends.
func Start(ctx context.Context, opts Options) (*Bed, error) {
	hosts, err := opts.expand()
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	if err := requirements(); err != nil {
		return nil, err
	}
	b := &Bed{opts: opts, weather: weather{hosts: map[*Host]*conditions{}}}
	if err := b.start(ctx, hosts); err != nil {
		b.Close()
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return b, nil
}

func (b *Bed) start(ctx context.Context, hosts []HostOptions) (err error) {
	if b.net, err = claimSubnet(); err != nil {
		return err
	}
	if b.Dir, err = b.net.folder(); err != nil {
		return err
	}
	b.Shared = filepath.Join(b.Dir, "shared")
	if err := os.Mkdir(b.Shared, 0o755); err != nil {
		return err
	}
	for i, o := range hosts {
		b.Hosts = append(b.Hosts, b.host(i, o))
	}
	if err := b.furnish(); err != nil {
		return err
	}
	if b.wire, err = newWire(b.net, b.opts.SecondNet); err != nil {
		return err
	}
	return b.powerOn(ctx, b.Hosts)
}

// furnish writes what outlives a host's power cycles: keys, homes, the client.
func (b *Bed) furnish() error {
	client, err := b.newClient()
	if err != nil {
		return err
	}
	err = each(b.Hosts, func(h *Host) (err error) {
		if err := os.MkdirAll(filepath.Join(h.dir(), "var-tmp"), 0o755); err != nil {
			return err
		}
		h.keys, err = hostKeys(h.index)
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range b.Hosts {
		if err := h.writeHomes(client.authorized); err != nil {
			return err
		}
	}
	return client.write(b.Hosts)
}

// powerOn starts hosts: all inits first, then one run of ip for all cables, then
// the boots at the same time.
func (b *Bed) powerOn(ctx context.Context, hosts []*Host) error {
	for _, h := range hosts {
		init, err := startInit(b.wire.thread, h)
		if err != nil {
			return fmt.Errorf("%s: start its init: %w", h.Name, err)
		}
		h.setInit(init)
	}
	if err := b.wire.plug(hosts...); err != nil {
		return err
	}
	return each(hosts, func(h *Host) error {
		if err := h.boot(ctx); err != nil {
			return fmt.Errorf("%s: boot: %w", h.Name, err)
		}
		return b.reapply(h)
	})
}

// Close ends every process of the bed and removes its links and files. Closing
// order: hosts, network, files, and the number last, as it names the others.
func (b *Bed) Close() error {
	var errs []error
	b.close.Do(func() {
		if b.wire != nil {
			// Links of hosts need no care: they go with the namespaces.
			errs = append(errs, each(b.Hosts, (*Host).kill))
			b.wire.close()
		}
		if b.Dir != "" {
			errs = append(errs, os.RemoveAll(b.Dir))
		}
		if b.net != nil {
			b.net.release()
		}
	})
	return errors.Join(errs...)
}

// Host returns the host of that name, or nil.
func (b *Bed) Host(name string) *Host {
	for _, h := range b.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// each calls f for all hosts at the same time and joins the errors.
func each(hosts []*Host, f func(*Host) error) error {
	errs := make([]error, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() { errs[i] = f(h) })
	}
	all.Wait()
	return errors.Join(errs...)
}
