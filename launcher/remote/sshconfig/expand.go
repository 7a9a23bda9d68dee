package sshconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tokens are the values of percent tokens such as %h.
type Tokens map[byte]string

// NewTokens are the tokens that ssh knows once host, user and port are known.
func NewTokens(q Query, host, user, port string) Tokens {
	local, _ := os.Hostname()
	short, _, _ := strings.Cut(local, ".")
	return Tokens{
		'h': host, 'n': q.Host, 'p': port, 'r': user, 'u': q.LocalUser, 'd': q.Home,
		'i': strconv.Itoa(os.Getuid()), 'l': local, 'L': short, 'k': host,
	}
}

// Expand replaces percent tokens; %% is a percent sign.
func Expand(text string, tokens Tokens) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		i++
		if i == len(text) {
			return "", fmt.Errorf("%q ends in a single %%", text)
		}
		value, ok := tokens[text[i]]
		if text[i] == '%' {
			value, ok = "%", true
		}
		if !ok {
			return "", fmt.Errorf("muster does not know the token %%%c in %q", text[i], text)
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// ExpandEnv replaces ${NAME} by the environment's value; one that is not set is
// an error, as in ssh.
func ExpandEnv(text string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", fmt.Errorf("${ is not closed in %q", text)
		}
		value, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		b.WriteString(value)
		text = rest
	}
}

// ExpandTilde replaces a leading ~ by the home directory.
func ExpandTilde(path, home string) string {
	if path == "~" {
		return home
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}
