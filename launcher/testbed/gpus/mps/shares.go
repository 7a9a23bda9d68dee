//go:build linux

package mps

import (
	"strconv"
	"strings"
)

func (d *daemon) setDefaultPercentage(args []string) reply {
	if len(args) != 1 {
		return say(badPercentage)
	}
	p, ok := percentage(args[0])
	if !ok {
		return say(badPercentage)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.defaults.Percentage = p
	return say("%.1f", p)
}

func (d *daemon) setPercentage(s *served, args []string) reply {
	if len(args) != 1 {
		return say(badPercentage)
	}
	p, ok := percentage(args[0])
	if !ok {
		return say(badPercentage)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.settings.Percentage = p
	_ = s.line.send(order{Do: "set", Settings: s.settings}, nil) // a dead server needs none
	return say("%.1f", p)
}

// device reads a device of a command. A UUID is taken without a word, and without effect:
// only the number in the server's list works (public report: k8s-device-plugin, pull
// request 572).
func (d *daemon) device(text string) (ordinal int, wrong *reply) {
	if strings.HasPrefix(text, "GPU-") || strings.HasPrefix(text, "MIG-") {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(d.devices()) {
		r := say(badOrdinal)
		return 0, &r
	}
	return n, nil
}

// into puts a limit that a command sets into settings.
func (d *daemon) into(limits map[int]string, args []string) *reply {
	if len(args) != 2 {
		r := say(badArgument)
		return &r
	}
	n, wrong := d.device(args[0])
	if wrong != nil {
		return wrong
	}
	if _, ok := size(args[1]); !ok {
		r := say(badLimit)
		return &r
	}
	if n >= 0 {
		limits[n] = args[1]
	}
	return nil
}

func (d *daemon) setDefaultLimit(args []string) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	if wrong := d.into(d.defaults.Limits, args); wrong != nil {
		return *wrong
	}
	return reply{}
}

func (d *daemon) setLimit(s *served, args []string) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	if wrong := d.into(s.settings.Limits, args); wrong != nil {
		return *wrong
	}
	_ = s.line.send(order{Do: "set", Settings: s.settings}, nil) // a dead server needs none
	return reply{}
}

func (d *daemon) limit(s settings, args []string) reply {
	if len(args) != 1 {
		return say(badArgument)
	}
	n, wrong := d.device(args[0])
	if wrong != nil {
		return *wrong
	}
	if s.Limits[n] == "" {
		return say(noLimit)
	}
	return say("%s", s.Limits[n])
}

func (d *daemon) setPriority(args []string) reply {
	if len(args) != 1 || args[0] != "0" && args[0] != "1" {
		return say(badPriority)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.defaults.Priority = int(args[0][0] - '0')
	return reply{}
}
