//go:build linux

package testbed

import (
	"fmt"
	"strings"
	"sync"
)

// weather is what a host's network suffers. All of it is kept here, because the
// packet filter's table is always written as a whole.
type weather struct {
	mu    sync.Mutex
	hosts map[*Host]*conditions
}

type conditions struct {
	cut, silent bool
	loss        float64 // percent, each way
	rate        int     // bytes a second, each way; 0: unlimited
}

// Cut takes the carrier from all nics of the host: its links are down, as with a
// pulled cable.
func (h *Host) Cut() error {
	return h.bed.change(h, func(c *conditions) { c.cut = true })
}

// CutSilently drops every frame from and to the host; its links stay up.
func (h *Host) CutSilently() error {
	return h.bed.change(h, func(c *conditions) { c.silent = true })
}

// Heal undoes Cut and CutSilently.
func (h *Host) Heal() error {
	return h.bed.change(h, func(c *conditions) { c.cut, c.silent = false, false })
}

// SetLoss drops that percentage of all frames from and to the host.
func (h *Host) SetLoss(percent float64) error {
	return h.bed.change(h, func(c *conditions) { c.loss = percent })
}

// SetRate limits the host to that many bytes a second each way; 0 lifts the limit.
func (h *Host) SetRate(bytes int) error {
	return h.bed.change(h, func(c *conditions) { c.rate = bytes })
}

func (b *Bed) change(h *Host, how func(*conditions)) error {
	b.weather.mu.Lock()
	defer b.weather.mu.Unlock()
	c := b.weather.hosts[h]
	if c == nil {
		c = &conditions{}
		b.weather.hosts[h] = c
	}
	old := *c
	how(c)
	if err := b.blow(h, old, *c); err != nil {
		return fmt.Errorf("testbed: network of %s: %w", h.Name, err)
	}
	return nil
}

// reapply gives a host that was started again the conditions it had.
func (b *Bed) reapply(h *Host) error {
	b.weather.mu.Lock()
	defer b.weather.mu.Unlock()
	if c := b.weather.hosts[h]; c != nil {
		return b.blow(h, conditions{}, *c)
	}
	return nil
}

func (b *Bed) blow(h *Host, old, now conditions) error {
	if !h.running() {
		return nil // reapply comes with the next start
	}
	if old.cut != now.cut {
		if err := b.wire.ip(carrier(h, !now.cut)...); err != nil {
			return err
		}
	}
	if old.rate != now.rate {
		if err := b.wire.limit(h, now.rate); err != nil {
			return err
		}
	}
	return b.wire.thread.do(func() error { return feed(b.weather.filter(), "nft", "-f", "-") })
}

func carrier(h *Host, up bool) []string {
	state := "down"
	if up {
		state = "up"
	}
	var script []string
	for _, port := range h.ports {
		script = append(script, fmt.Sprintf("link set %s %s", port, state))
	}
	return script
}

// filter is the packet filter's table for all hosts, for one transaction.
func (w *weather) filter() string {
	var rules strings.Builder
	for h, c := range w.hosts {
		for _, port := range h.ports {
			for _, way := range []string{"iifname", "oifname"} {
				if c.silent || c.loss >= 100 {
					fmt.Fprintf(&rules, "%s %q drop\n", way, port)
				} else if c.loss > 0 {
					fmt.Fprintf(&rules, "%s %q numgen random mod 10000 < %d drop\n", way, port, int(c.loss*100))
				}
			}
		}
	}
	return "table bridge testbed\ndelete table bridge testbed\n" +
		"table bridge testbed {\nchain forward {\ntype filter hook forward priority 0\n" + rules.String() + "}\n}\n"
}

// limit shapes both ends of each of the host's links. The kernel's emulator of
// bad networks (netem) is often not built; the token bucket is.
func (w *wire) limit(h *Host, rate int) error {
	shape := func(devices []string) error {
		var script strings.Builder
		for _, dev := range devices {
			if rate == 0 {
				fmt.Fprintf(&script, "qdisc del dev %s root\n", dev)
				continue
			}
			// The bucket must hold the largest packet and some 10 ms of traffic.
			fmt.Fprintf(&script, "qdisc replace dev %s root tbf rate %dbps burst %d latency 400ms\n",
				dev, rate, max(64<<10, rate/100))
		}
		return feed(script.String(), "tc", "-batch", "-")
	}
	if err := w.thread.do(func() error { return shape(h.ports) }); err != nil {
		return err
	}
	return h.Do(func() error { return shape([]string{h.opts.NIC, h.opts.SecondNIC}[:len(h.ports)]) })
}
