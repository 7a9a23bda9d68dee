//go:build linux

package proc

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listening reports whether somebody listens on a TCP port in this network namespace.
func Listening(port int) bool { return len(listeners(port)) > 0 }

// Listener names a process that listens on a port, as far as this user may see it.
func Listener(port int) string {
	sockets := listeners(port)
	if len(sockets) == 0 {
		return ""
	}
	for _, s := range All() {
		if holdsAny(s.PID, sockets) {
			return fmt.Sprintf("%s (pid %d)", s.Command, s.PID)
		}
	}
	return "a process of another user"
}

// listeners returns the sockets that listen on a port, as /proc/PID/fd names them.
func listeners(port int) map[string]bool {
	if sockets, err := diagListeners(port); err == nil {
		return sockets
	}
	return tableListeners(port) // a kernel without inet_diag
}

// tableListeners reads proc_net(5); the state 0A is TCP_LISTEN.
func tableListeners(port int) map[string]bool {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // a kernel without IPv6
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
		f.Close()
	}
	return sockets
}

func holdsAny(pid int, sockets map[string]bool) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && sockets[target] {
			return true
		}
	}
	return false
}
