package coordinator

import (
	"net"

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
