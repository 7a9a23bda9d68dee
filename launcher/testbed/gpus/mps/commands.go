//go:build linux

package mps

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
	"github.com/muster-dev/muster/launcher/testbed/gpus/cuda"
)

// converse answers the commands of one front end. After "quit" it says so to done.
func (d *daemon) converse(conn *net.UnixConn, done chan<- struct{}) {
	defer conn.Close()
	_, uid, err := peer(conn)
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		r := reply{Refused: uid != 0 && uid != os.Getuid()}
		if !r.Refused {
			r = d.command(words)
		}
		last := words[0] == "quit" && !r.Refused && d.ends()
		if last {
			d.tidy()
		}
		err := json.NewEncoder(conn).Encode(r)
		if last {
			done <- struct{}{}
		}
		if err != nil {
			return
		}
	}
}

func (d *daemon) ends() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.quitting && len(d.servers) == 0
}

// command answers one command line.
func (d *daemon) command(words []string) reply {
	name, args := words[0], words[1:]
	if f := strike(d.folder, gpus.MPSControl+" "+name, gpus.MPSControl+" *"); f != nil {
		return reply{Text: f.Says + "\n"}
	}
	do := commands[name]
	if s, err := gpus.Read(d.folder); err == nil && slices.Contains(s.Lacks, name) {
		do = nil
	}
	if do == nil {
		return reply{Text: fmt.Sprintf(unknownCommand+"\n", name)}
	}
	return do(d, args)
}

// say is an answer of one line, or of none.
func say(format string, args ...any) reply {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		text += "\n"
	}
	return reply{Text: text}
}

var commands map[string]func(d *daemon, args []string) reply

func init() {
	commands = map[string]func(d *daemon, args []string) reply{
		"get_server_list":        (*daemon).serverList,
		"get_server_status":      ofServer((*daemon).serverStatus),
		"start_server":           (*daemon).startServer,
		"shutdown_server":        ofServer((*daemon).shutdownServer),
		"get_client_list":        ofServer((*daemon).clientList),
		"get_device_client_list": (*daemon).deviceClientList,
		"ps":                     (*daemon).ps,
		"terminate_client":       ofServer((*daemon).terminateClient),
		"quit":                   (*daemon).quitCommand,

		"set_default_active_thread_percentage": (*daemon).setDefaultPercentage,
		"get_default_active_thread_percentage": func(d *daemon, _ []string) reply { return say("%.1f", d.now().Percentage) },
		"set_active_thread_percentage":         ofServer((*daemon).setPercentage),
		"get_active_thread_percentage":         ofServer(func(d *daemon, s *served, _ []string) reply { return say("%.1f", d.of(s).Percentage) }),
		"set_default_device_pinned_mem_limit":  (*daemon).setDefaultLimit,
		"get_default_device_pinned_mem_limit":  func(d *daemon, args []string) reply { return d.limit(d.now(), args) },
		"set_device_pinned_mem_limit":          ofServer((*daemon).setLimit),
		"get_device_pinned_mem_limit":          ofServer(func(d *daemon, s *served, args []string) reply { return d.limit(d.of(s), args) }),
		"set_default_client_priority":          (*daemon).setPriority,
		"get_default_client_priority":          func(d *daemon, _ []string) reply { return say("%d", d.now().Priority) },
	}
}

// ofServer reads the server that a command is about.
func ofServer(do func(*daemon, *served, []string) reply) func(*daemon, []string) reply {
	return func(d *daemon, args []string) reply {
		if len(args) == 0 {
			return say(badArgument)
		}
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return say(badArgument)
		}
		d.mu.Lock()
		s := d.servers[pid]
		d.mu.Unlock()
		if s == nil {
			return say(serverNotFound, pid)
		}
		return do(d, s, args[1:])
	}
}

func (d *daemon) now() settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.defaults.clone()
}

func (d *daemon) of(s *served) settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.settings.clone()
}

func (d *daemon) all() []*served {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*served
	for _, pid := range slices.Sorted(maps.Keys(d.servers)) {
		all = append(all, d.servers[pid])
	}
	return all
}

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

func (d *daemon) startServer(args []string) reply {
	if len(args) != 2 || args[0] != "-uid" {
		return say(badArgument)
	}
	uid, err := strconv.Atoi(args[1])
	if err != nil {
		return say(badArgument)
	}
	if uid != os.Getuid() && os.Getuid() != 0 {
		return say(insufficient, os.Getuid(), "start a server of another user")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.servers) == 0 && !d.quitting {
		d.start(uid)
	}
	return reply{}
}

func (d *daemon) shutdownServer(s *served, args []string) reply {
	if slices.Contains(args, "-f") {
		d.mu.Lock()
		s.retiring = true
		d.mu.Unlock()
		s.kill()
		<-s.exited
		return reply{}
	}
	n, answered := s.ask(order{Do: "list"})
	if !answered {
		return say(serverBusy, s.pid)
	}
	d.mu.Lock()
	s.retire()
	d.mu.Unlock()
	if n.Active > 0 {
		d.log.line("Control", "Control will try shutting down server %d again in at most %d ms", s.pid, 1000)
		return say(activeThreads, s.pid, n.Active)
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
	}
	return reply{}
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

func (d *daemon) terminateClient(s *served, args []string) reply {
	if len(args) != 1 {
		return say(badArgument)
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return say(badArgument)
	}
	n, answered := s.ask(order{Do: "terminate", PID: pid})
	switch {
	case !answered:
		return say(serverBusy, s.pid)
	case !n.Found:
		return say(badProcess, pid)
	}
	return reply{}
}

func (d *daemon) quitCommand(args []string) reply {
	after := time.Duration(-1)
	if len(args) == 2 && args[0] == "-t" {
		seconds, err := strconv.Atoi(args[1])
		if err != nil || seconds < 0 {
			return say(badArgument)
		}
		after = time.Duration(seconds) * time.Second
		d.log.line("Control", "quit command issued with timeout of %d", seconds)
	} else if len(args) != 0 {
		return say(badArgument)
	}
	if !d.quit(after) {
		return reply{Status: 1}
	}
	return reply{}
}

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
