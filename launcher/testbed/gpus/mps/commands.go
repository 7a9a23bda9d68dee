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

	"github.com/muster-dev/muster/launcher/testbed/gpus"
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
