// Package hostlist reads lists of hosts: [USER@]HOST[:PORT] with ranges such as gpu[01-04].
package hostlist

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Max bounds a list's hosts; maxHostName is what DNS allows.
const (
	Max         = 4096
	maxHostName = 253
)

// Error is what is wrong with a host name, and where in it.
type Error struct {
	Text           string
	Offset, Length int // bytes within Text
	Problem        string
}

func (e *Error) Error() string {
	return fmt.Sprintf("host %q, column %d: %s", e.Text, e.Offset+1, e.Problem)
}

// Host is one host of a list.
type Host struct {
	Address string // without user and port
	User    string // "" where none is written
	Port    int    // 0 where none is written
	Written string // [user@]address[:port]
}

// Key is equal for hosts that are the same by their text: users do not count, ports do, since
// containers publish several sshd's on one address.
func (h Host) Key() string { return fmt.Sprintf("%s %d", strings.ToLower(h.Address), h.Port) }

// Expand expands one entry of a host list: ranges such as gpu[01-04], and names separated by
// commas.
func Expand(text string) ([]Host, *Error) {
	var hosts []Host
	for _, entry := range splitAtCommas(fragment{text, 0}) {
		more, err := entry.hosts()
		if err == nil && len(hosts)+len(more) > Max {
			err = entry.wrong("there can be at most %d hosts", Max)
		}
		if err != nil {
			err.Text = text
			return nil, err
		}
		hosts = append(hosts, more...)
	}
	return hosts, nil
}

// WithPort writes an address with its port.
func WithPort(address string, port int) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return fmt.Sprintf("%s:%d", address, port)
}

// CheckUser refuses what is no user name. Names of Windows domains have a
// backslash, others an @.
func CheckUser(user string) *Error {
	all := fragment{user, 0}
	switch {
	case user == "":
		return all.problem(0, 1, "the user name is empty")
	case user[0] == '-':
		return all.problem(0, 1, "a user name cannot begin with \"-\": ssh would take it for an option")
	}
	for i, c := range user {
		if c > 0x7f || !isAlphanumeric(byte(c)) && !strings.ContainsRune(`._-\@+$`, c) {
			return all.problem(i, len(string(c)), "a user name cannot have %q", c)
		}
	}
	return nil
}

// fragment is a part of an entry, with its place in it.
type fragment struct {
	text   string
	offset int
}

func (f fragment) slice(low, high int) fragment { return fragment{f.text[low:high], f.offset + low} }

// wrong is a problem of all of the fragment.
func (f fragment) wrong(format string, args ...any) *Error {
	return f.problem(0, len(f.text), format, args...)
}

func (f fragment) problem(offset, length int, format string, args ...any) *Error {
	return &Error{Offset: f.offset + offset, Length: length, Problem: fmt.Sprintf(format, args...)}
}

// outside are the places of a character that is not within brackets.
func (f fragment) outside(wanted byte) (places []int) {
	depth := 0
	for i := range len(f.text) {
		switch c := f.text[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth = max(0, depth-1)
		case c == wanted && depth == 0:
			places = append(places, i)
		}
	}
	return places
}

// splitAtCommas splits at the commas outside brackets, and takes blanks off.
func splitAtCommas(f fragment) (parts []fragment) {
	start := 0
	for _, end := range append(f.outside(','), len(f.text)) {
		part := f.slice(start, end)
		blank := len(part.text) - len(strings.TrimLeft(part.text, " "))
		parts = append(parts, fragment{strings.Trim(part.text, " "), part.offset + blank})
		start = end + 1
	}
	return parts
}

// hosts expands one [USER@]HOST[:PORT].
func (f fragment) hosts() (hosts []Host, err *Error) {
	prefix, rest := "", f
	if i := strings.LastIndexByte(f.text, '@'); i >= 0 {
		prefix, rest = f.text[:i+1], f.slice(i+1, len(f.text))
		if err := CheckUser(f.text[:i]); err != nil {
			err.Offset += f.offset
			return nil, err
		}
	}
	address, port, err := rest.splitPort()
	if err != nil {
		return nil, err
	}
	addresses, err := address.addresses()
	if err != nil {
		return nil, err
	}
	ports, err := port.ports()
	if err != nil {
		return nil, err
	}
	if len(addresses)*len(ports) > Max {
		return nil, f.wrong("there can be at most %d hosts", Max)
	}
	for _, address := range addresses {
		for _, port := range ports {
			written := address
			if port != 0 {
				written = WithPort(address, port)
			}
			hosts = append(hosts, Host{address, strings.TrimSuffix(prefix, "@"), port, prefix + written})
		}
	}
	return hosts, nil
}

// splitPort splits HOST:PORT. An IPv6 address has its port only after brackets.
func (f fragment) splitPort() (address, port fragment, err *Error) {
	end := len(f.text)
	address, port = f, f.slice(end, end)
	colon := -1
	if closing := strings.IndexByte(f.text, ']'); closing > 0 && f.text[0] == '[' && strings.Contains(f.text[:closing], ":") {
		address = f.slice(1, closing)
		if closing == end-1 {
			return address, port, nil
		}
		if colon = closing + 1; f.text[colon] != ':' {
			return address, port, f.problem(colon, 1, "after the brackets of an IPv6 address comes a port, as in [2001:db8::1]:22")
		}
	} else if colons := f.outside(':'); len(colons) == 1 {
		colon = colons[0]
		address = f.slice(0, colon)
	} else {
		return address, port, nil
	}
	if port = f.slice(colon+1, end); port.text == "" {
		err = f.problem(colon, 1, "the port after \":\" is missing")
	}
	return address, port, err
}

// addresses expands the host part.
func (f fragment) addresses() ([]string, *Error) {
	switch {
	case strings.Contains(f.text, ":") && !strings.Contains(f.text, "["):
		if addr, err := netip.ParseAddr(f.text); err != nil || !addr.Is6() || strings.ContainsAny(addr.Zone(), "/\\ \x00") {
			return nil, f.wrong("%q is neither HOST:PORT nor an IPv6 address", f.text)
		}
		return []string{f.text}, nil
	case f.text == "":
		return nil, f.problem(0, 1, "the host name is empty")
	case f.text[0] == '-':
		return nil, f.problem(0, 1, "a host name cannot begin with \"-\": ssh would take it for an option")
	case f.text[0] == '.':
		return nil, f.problem(0, 1, "a host name cannot begin with \".\"")
	}
	return f.expandRanges("host name", func(c byte) bool { return isAlphanumeric(c) || c == '.' || c == '-' || c == '_' })
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlphanumeric(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// ports expands the port part; no port is the port 0.
func (f fragment) ports() ([]int, *Error) {
	if f.text == "" {
		return []int{0}, nil
	}
	texts, err := f.expandRanges("port", isDigit)
	if err != nil {
		return nil, err
	}
	ports := make([]int, len(texts))
	for i, text := range texts {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, f.wrong("the port %s is not from 1 to 65535", text)
		}
		ports[i] = int(port)
	}
	return ports, nil
}
