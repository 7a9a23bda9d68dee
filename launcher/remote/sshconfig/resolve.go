package sshconfig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Query is a host as the user named it, with what takes precedence over the
// files.
type Query struct {
	Host      string
	User      string // "": as the files say
	Port      int    // 0: as the files say
	LocalUser string
	Home      string
}

// check refuses names that a ProxyCommand or "Match exec" would hand to a shell
// with a meaning of their own; ssh does so too.
func (q Query) check() error {
	odd := func(text string) bool {
		return strings.HasPrefix(text, "-") || strings.ContainsAny(text, "'`\"$\\;&<>|(){} \t\r\n\x00")
	}
	if q.Host == "" || odd(q.Host) {
		return fmt.Errorf("%q is not a host name", q.Host)
	}
	if odd(q.User) {
		return fmt.Errorf("%q is not a user name", q.User)
	}
	return nil
}

// addresses are those of this machine's interfaces.
func (q Query) addresses() []netip.Addr {
	var out []netip.Addr
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, prefix.Addr().Unmap())
		}
	}
	return out
}

// evaluation is one walk through the files for one host.
type evaluation struct {
	query  Query
	host   string // what Host patterns are compared with
	values *Values
	final  bool
}

// Resolve answers what the files say of a host.
func (c *Config) Resolve(ctx context.Context, q Query) (*Values, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	e := &evaluation{query: q, host: q.Host, values: &Values{set: map[string][]Value{}}}
	if err := e.pass(ctx, c); err != nil {
		return nil, err
	}
	if !c.wantFinal {
		return e.values, nil
	}
	// As in ssh, Host patterns of the second pass see the name to connect to.
	e.host, e.final = e.hostName(), true
	if err := e.pass(ctx, c); err != nil {
		return nil, err
	}
	return e.values, nil
}

func (e *evaluation) pass(ctx context.Context, c *Config) error {
	for _, file := range c.files {
		if err := e.walk(ctx, file, true); err != nil {
			return err
		}
	}
	return nil
}

// walk applies the directives of one file. Nothing in an included file holds
// where its Include line does not.
func (e *evaluation) walk(ctx context.Context, file []directive, outer bool) error {
	if !outer {
		return nil
	}
	active := true
	for _, d := range file {
		var err error
		switch {
		case d.keyword == "host":
			active = matchList(d.args, e.host)
		case d.keyword == "match":
			active, err = e.matches(ctx, d)
		case d.keyword == "include":
			err = e.walkAll(ctx, d.included, active)
		case active:
			e.set(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *evaluation) walkAll(ctx context.Context, files [][]directive, active bool) error {
	for _, file := range files {
		if err := e.walk(ctx, file, active); err != nil {
			return err
		}
	}
	return nil
}

// accumulates are the keywords whose values add up; of all others the first
// counts.
var accumulates = map[string]bool{"identityfile": true, "certificatefile": true}

// excludes are keywords that also fill each other's place.
var excludes = map[string]string{"proxyjump": "proxycommand", "proxycommand": "proxyjump"}

func (e *evaluation) set(d directive) {
	have := e.values.set[d.keyword]
	if accumulates[d.keyword] {
		same := func(v Value) bool { return v.Args[0] == d.args[0] }
		if slices.ContainsFunc(have, same) {
			return
		}
	} else if len(have) > 0 || len(e.values.set[excludes[d.keyword]]) > 0 {
		return
	}
	e.values.set[d.keyword] = append(have, Value{Args: d.args, Pos: d.pos})
}

// hostName is the name to connect to, as far as it is known.
func (e *evaluation) hostName() string {
	name := e.values.First("hostname", "")
	if name == "" {
		return e.query.Host
	}
	expanded, err := Expand(name, Tokens{'h': e.query.Host})
	if err != nil {
		return name
	}
	return expanded
}

func (e *evaluation) user() string {
	if e.query.User != "" {
		return e.query.User
	}
	return e.values.First("user", e.query.LocalUser)
}

func (e *evaluation) port() string {
	if e.query.Port != 0 {
		return strconv.Itoa(e.query.Port)
	}
	return e.values.First("port", "22")
}

func (e *evaluation) tokens() Tokens {
	return NewTokens(e.query, e.hostName(), e.user(), e.port())
}
