package coordinator

import (
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

func hostPart(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return host
}

func signalNumber(name string) int { return int(unix.SignalNum(name)) }

// text makes output fit for JSON.
func text(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }
