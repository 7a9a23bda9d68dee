package config

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// forwardedFrom is the source of forwarded variables.
const forwardedFrom = "forwarded from the launching machine"

// machineOwn are variables that describe the machine and session that they are set in.
// They travel only where they are written out: HOME of a laptop is wrong on a host.
var machineOwn = []string{
	"CONDA_*", "DBUS_*", "DISPLAY", "HOME", "HOSTNAME", "LD_*", "LOGNAME", "MAIL", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL",
	"SLURM_*", "SSH_*", "TERM", "TMPDIR", "USER", "VIRTUAL_ENV", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_*", "_",
}

// forward decodes which variables of the launching machine go to ranks, and takes from
// the source those that do.
func (d *decoder) forward(attr *hclsyntax.Attribute) (patterns []string, found map[string]string) {
	if attr == nil {
		return nil, nil
	}
	elements, ok := d.elements(attr.Expr)
	if !ok {
		d.noPatternList(attr)
		return nil, nil
	}
	for _, e := range elements {
		if pattern, ok := d.pattern(e); ok {
			patterns = append(patterns, pattern)
			d.checkFound(pattern, e.expr.Range())
		}
	}
	return patterns, forwarded(patterns, d.src.Forwarded)
}

func (d *decoder) noPatternList(attr *hclsyntax.Attribute) {
	known := len(d.diags)
	value, ok := d.attr(attr)
	if !ok || len(d.diags) > known {
		return
	}
	d.error(attr.Expr.Range(), "Wrong type", "forward is a list of names and patterns such as [\"WANDB_*\", \"HF_TOKEN\"], not %s.", describe(value))
}

// pattern is one element of forward, where it is good.
func (d *decoder) pattern(e element) (string, bool) {
	at := e.expr.Range()
	if e.value.IsNull() || e.value.Type() != cty.String {
		d.error(at, "Wrong type", "A pattern of forward is text in quotes, not %s.", describe(e.value))
		return "", false
	}
	text := e.value.AsString()
	name, _, isPattern := strings.Cut(text, "*")
	switch reason := ownedBy(text); {
	case strings.Contains(text, "="):
		d.error(at, "Invalid pattern", "forward has names only, their values are this machine's. To set a variable to a value, use env.")
	case strings.Trim(text, "*") == "" && text != "":
		d.error(at, "Invalid pattern", "%s would send every variable of this machine, which are wrong on others. Name those that are needed.", quoted(text))
	case !envName.MatchString(strings.ReplaceAll(text, "*", "A")):
		d.error(at, "Invalid pattern", "%s: a pattern is the name of a variable, in which * stands for any number of characters.", quoted(text))
	case reason == "" && isPattern && ownedBy(name+"X") != "":
		d.error(at, "Variable belongs to muster", "%s cannot be forwarded: %s", text, ownedBy(name+"X"))
	case reason != "":
		d.error(at, "Variable belongs to muster", "%s cannot be forwarded: %s", text, reason)
	default:
		return text, true
	}
	return "", false
}

// checkFound warns of a name that the launching machine has not set, where it was asked.
func (d *decoder) checkFound(pattern string, at hcl.Range) {
	if d.src.Forwarded == nil || strings.Contains(pattern, "*") {
		return
	}
	if _, set := d.src.Forwarded[pattern]; !set {
		d.warn(at, "Nothing to forward", "%s is not set on this machine, or is no text: ranks do not get it from here.", pattern)
	}
}

// forwarded are the variables of environ that the patterns name.
func forwarded(patterns []string, environ map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range environ {
		if mayForward(name, value) && slices.ContainsFunc(patterns, func(p string) bool { return names(p, name) }) {
			found[name] = value
		}
	}
	return found
}

// mayForward is whether a variable can be carried to a rank at all.
func mayForward(name, value string) bool {
	return envName.MatchString(name) && ownedBy(name) == "" && utf8.ValidString(value) &&
		!strings.ContainsRune(value, 0) && len(name)+len(value) <= maxArgument-2
}

// names is whether a pattern of forward is about a variable. Those of the machine itself
// must be written out.
func names(pattern, name string) bool {
	if pattern == name {
		return true
	}
	isOwn := slices.ContainsFunc(machineOwn, func(own string) bool { return matches(own, name) })
	return !isOwn && matches(pattern, name)
}

// matches is whether name is pattern, in which each * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}

// forwardedVars are the forwarded variables by name.
func (j *Job) forwardedVars() map[string]EnvVar {
	vars := map[string]EnvVar{}
	for name, value := range maps.All(j.forwarded) {
		vars[name] = EnvVar{Name: name, Value: value, Source: forwardedFrom, Sensitive: true}
	}
	return vars
}
