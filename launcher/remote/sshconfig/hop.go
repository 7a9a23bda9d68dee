package sshconfig

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Hop is a jump host as ProxyJump names it.
type Hop struct {
	Host string
	User string // "": as the files say
	Port int    // 0: as the files say
}

// parseHop reads [user@]host[:port], where an IPv6 address with a port stands in
// brackets, and the form ssh://[user@]host[:port].
func parseHop(text string) (Hop, error) {
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "ssh://"), "/")
	var h Hop
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		h.User, rest = rest[:at], rest[at+1:]
		if h.User == "" {
			return Hop{}, fmt.Errorf("%q has no user before the @", text)
		}
	}
	host, port, err := splitPort(rest)
	if err != nil || host == "" || strings.HasPrefix(host, "-") {
		return Hop{}, fmt.Errorf("%q is not [user@]host[:port]", text)
	}
	h.Host, h.Port = host, port
	return h, nil
}

func splitPort(text string) (string, int, error) {
	if strings.Count(text, ":") != 1 && !strings.HasPrefix(text, "[") {
		return text, 0, nil // a name, or an IPv6 address as it is
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return text[1 : len(text)-1], 0, nil
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err == nil && port == 0 {
		err = strconv.ErrRange
	}
	return host, int(port), err
}
