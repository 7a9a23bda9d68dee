//go:build linux

package mps

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

func (d *daemon) serverList([]string) reply {
	var text strings.Builder
	for _, s := range d.all() {
		fmt.Fprintln(&text, s.pid)
	}
	return reply{Text: text.String()}
}

func (d *daemon) serverStatus(s *served, _ []string) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	return say("%s", s.state)
}

func (d *daemon) clientList(s *served, _ []string) reply {
	n, answered := s.ask(order{Do: "list"})
	if !answered {
		return say(serverBusy, s.pid)
	}
	var text strings.Builder
	for _, pid := range pids(n.Clients) {
		fmt.Fprintln(&text, pid)
	}
	return reply{Text: text.String()}
}

// pids are the processes of these rows, each once.
func pids(rows []clientRow) []int {
	var found []int
	for _, row := range rows {
		if !slices.Contains(found, row.PID) {
			found = append(found, row.PID)
		}
	}
	return found
}

// chosen are all servers, or that whose PID is an argument.
func (d *daemon) chosen(args []string) ([]*served, *reply) {
	if len(args) == 0 {
		return d.all(), nil
	}
	var one *served
	r := ofServer(func(_ *daemon, s *served, _ []string) reply { one = s; return reply{} })(d, args)
	if one == nil {
		return nil, &r
	}
	return []*served{one}, nil
}

func (d *daemon) deviceClientList(args []string) reply {
	servers, wrong := d.chosen(args)
	if wrong != nil {
		return *wrong
	}
	var text strings.Builder
	for _, device := range d.devices() {
		var on []clientRow
		for _, s := range servers {
			n, answered := s.ask(order{Do: "list"})
			if !answered {
				return say(serverBusy, s.pid)
			}
			on = append(on, slices.DeleteFunc(n.Clients, func(row clientRow) bool { return row.UUID != device.UUID })...)
		}
		fmt.Fprintln(&text, device.UUID)
		for _, pid := range pids(on) {
			fmt.Fprintln(&text, pid)
		}
	}
	return reply{Text: text.String()}
}

// devices are those that servers of this daemon have.
func (d *daemon) devices() []cuda.Device {
	s, err := gpus.Read(d.folder)
	if err != nil {
		return nil
	}
	return devicesOf(s)
}

func (d *daemon) ps(args []string) reply {
	if len(args) > 0 && args[0] == "-p" {
		args = args[1:]
	}
	servers, wrong := d.chosen(args)
	if wrong != nil {
		return *wrong
	}
	type row struct {
		clientRow
		server int
	}
	var rows []row
	partitions := false
	for _, s := range servers {
		n, answered := s.ask(order{Do: "list"})
		if !answered {
			return say(serverBusy, s.pid)
		}
		for _, c := range n.Clients {
			if c.UUID != "" {
				rows = append(rows, row{c, s.pid})
				partitions = partitions || c.MIG
			}
		}
	}
	width := len("DEVICE") + 2
	for _, r := range rows {
		width = max(width, len(r.UUID)+2)
	}
	var text strings.Builder
	line := func(pid, id, server, device, partition, namespace, command string) {
		if partitions {
			device = fmt.Sprintf("%-*s%-15s", width, device, partition)
		}
		fmt.Fprintf(&text, "%-10s%-10s%-15s%-*s%-15s%s\n", pid, id, server, width, device, namespace, command)
	}
	line("PID", "ID", "SERVER", "DEVICE", "PARTITION", "NAMESPACE", "COMMAND")
	for _, r := range rows {
		line(strconv.Itoa(r.PID), strconv.Itoa(r.ID), strconv.Itoa(r.server), r.UUID, "N/A", r.Namespace, r.Name)
	}
	return reply{Text: text.String()}
}
