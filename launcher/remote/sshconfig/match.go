package sshconfig

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// execTimeout bounds a "Match exec" command; ssh would wait for ever.
const execTimeout = 10 * time.Second

// criterion is one condition of a Match line.
type criterion struct {
	name    string
	arg     string
	negated bool
}

// flags are criteria without an argument, and tests those with one.
var (
	flags = []string{"all", "canonical", "final"}
	tests = []string{"exec", "host", "originalhost", "user", "localuser", "localnetwork", "tagged", "sessiontype"}
)

// match parses the criteria of a Match line.
func (l *loader) match(d *directive) error {
	for args := d.args; len(args) > 0; {
		c, rest, err := parseCriterion(args, d.pos)
		if err != nil {
			return err
		}
		l.wantFinal = l.wantFinal || c.name == "final"
		d.criteria, args = append(d.criteria, c), rest
	}
	return checkAll(d)
}

func parseCriterion(args []string, pos Position) (criterion, []string, error) {
	name, arg, hasArg := strings.Cut(args[0], "=")
	c := criterion{name: strings.ToLower(name)}
	if after, ok := strings.CutPrefix(c.name, "!"); ok {
		c.name, c.negated = after, true
	}
	if slices.Contains(flags, c.name) && !hasArg {
		return c, args[1:], nil
	}
	if !slices.Contains(tests, c.name) {
		return c, nil, pos.errorf("muster does not know the Match criterion %q", args[0])
	}
	if hasArg {
		c.arg = arg
		return c, args[1:], nil
	}
	if len(args) < 2 {
		return c, nil, pos.errorf("Match %s lacks its argument", c.name)
	}
	c.arg = args[1]
	return c, args[2:], nil
}

// checkAll refuses "all" beside anything but final and canonical, as ssh does.
func checkAll(d *directive) error {
	isAll := func(c criterion) bool { return c.name == "all" }
	at := slices.IndexFunc(d.criteria, isAll)
	if at < 0 {
		return nil
	}
	for _, c := range d.criteria {
		if c.name != "all" && c.name != "final" && c.name != "canonical" {
			return d.pos.errorf("Match all cannot be combined with %s", c.name)
		}
	}
	if at != len(d.criteria)-1 || d.criteria[at].negated {
		return d.pos.errorf("Match all stands last and is not negated")
	}
	return nil
}

// matches evaluates a Match line. Commands run only while all before them held.
func (e *evaluation) matches(ctx context.Context, d directive) (bool, error) {
	for _, c := range d.criteria {
		ok, err := e.holds(ctx, c, d.pos)
		if err != nil {
			return false, err
		}
		if ok == c.negated {
			return false, nil
		}
	}
	return true, nil
}

func (e *evaluation) holds(ctx context.Context, c criterion, pos Position) (bool, error) {
	list := strings.Split(c.arg, ",")
	switch c.name {
	case "all":
		return true, nil
	case "final", "canonical":
		return e.final, nil
	case "host":
		return matchList(lower(list), strings.ToLower(e.hostName())), nil
	case "originalhost":
		return matchList(lower(list), strings.ToLower(e.query.Host)), nil
	case "user":
		return matchList(list, e.user()), nil
	case "localuser":
		return matchList(list, e.query.LocalUser), nil
	case "tagged":
		return matchList(list, e.values.First("tag", "")), nil
	case "sessiontype":
		return matchList(list, "exec"), nil
	case "localnetwork":
		return e.inNetwork(list, pos)
	case "exec":
		return e.runs(ctx, c.arg, pos)
	}
	return false, pos.errorf("muster does not know the Match criterion %q", c.name)
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// inNetwork reports whether an address of this machine lies in one of the
// networks and in none of the negated ones.
func (e *evaluation) inNetwork(list []string, pos Position) (bool, error) {
	found := false
	for _, item := range list {
		prefix, err := netip.ParsePrefix(strings.TrimPrefix(item, "!"))
		if err != nil {
			return false, pos.errorf("Match localnetwork: %v", err)
		}
		if !slices.ContainsFunc(e.query.addresses(), prefix.Contains) {
			continue
		}
		if strings.HasPrefix(item, "!") {
			return false, nil
		}
		found = true
	}
	return found, nil
}

// runs reports whether a command of "Match exec" ends well.
func (e *evaluation) runs(ctx context.Context, command string, pos Position) (bool, error) {
	expanded, err := Expand(command, e.tokens())
	if err != nil {
		return false, pos.errorf("Match exec: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", expanded)
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		return false, pos.errorf("Match exec: %q did not end within %s", command, execTimeout)
	}
	return err == nil, nil
}
