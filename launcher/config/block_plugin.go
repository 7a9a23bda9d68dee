package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var pluginSchema = schema{
	where: "a plugin block",
	attrs: []attrSchema{{name: "path", required: true}, {name: "sha256", required: true}, {name: "args"}},
}

var (
	pluginName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)
	hexDigits  = regexp.MustCompile(`^[0-9A-Fa-f]+$`)
)

// digestLength is how many hex digits a SHA-256 has.
const digestLength = 64

// plugin decodes a plugin block, nil where there is none.
func (d *decoder) plugin(block *hclsyntax.Block) *Plugin {
	if block == nil {
		return nil
	}
	c := d.content(block.Body, block.DefRange(), pluginSchema)
	name, at := label(block)
	if len(block.Labels) > 0 && !pluginName.MatchString(name) {
		d.error(at, "Invalid plugin name", "%q: the name of a plugin is at most 63 letters, digits, '-' and '_', and does not begin with '-'.", name)
	}
	path := d.pluginPath(c.attrs["path"])
	return &Plugin{
		Name:   name,
		Path:   path,
		Args:   d.pluginArgs(c.attrs["args"]),
		SHA256: d.sha256(c.attrs["sha256"], path),
		Range:  block.DefRange(),
	}
}

// pluginPath is where the program is on each host. It is started by what has no
// folder of its own there, so that a relative path would mean nothing.
func (d *decoder) pluginPath(attr *hclsyntax.Attribute) string {
	known := len(d.diags)
	path := d.string(attr)
	advice := ""
	switch {
	case !d.needed(attr) || len(d.diags) > known:
		return path
	case strings.TrimSpace(path) == "":
		advice = `path is empty. Write where the program is on each host, such as "~/bin/prober"`
	case strings.HasSuffix(path, "/") || path == "~":
		advice = fmt.Sprintf("%s is a folder. Write the program in it, such as %s", quoted(path), quoted(strings.TrimSuffix(path, "/")+"/prober"))
	case strings.HasPrefix(path, "/") || strings.HasPrefix(path, "~/"):
		return path
	case strings.HasPrefix(path, "~"):
		advice = "Only ~/ (your own home on each host) is known; write another user's home in full"
	case strings.HasPrefix(path, "$HOME/"):
		advice = "No shell reads path: write " + quoted("~/"+strings.TrimPrefix(path, "$HOME/"))
	default:
		advice = fmt.Sprintf("%s begins nowhere: a plugin is started on each host, by its whole path. Write it from / or from your home, such as %s",
			quoted(path), quoted("~/"+strings.TrimPrefix(path, "./")))
	}
	d.error(attr.Expr.Range(), "Invalid path", "%s.", advice)
	return path
}

// sha256 is the digest of the plugin's file, in lower case.
func (d *decoder) sha256(attr *hclsyntax.Attribute, path string) string {
	known := len(d.diags)
	text := strings.TrimSpace(d.string(attr))
	if !d.needed(attr) || len(d.diags) > known {
		return ""
	}
	if len(text) == digestLength && hexDigits.MatchString(text) {
		return strings.ToLower(text)
	}
	if path == "" || len(path) > 60 {
		path = "FILE"
	}
	problem := "has other characters"
	if word, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(text), "sha256:"), " "); len(word) == digestLength && hexDigits.MatchString(word) {
		d.error(attr.Expr.Range(), "Invalid checksum", "sha256 is the %d hex digits alone: write %q.", digestLength, word)
		return ""
	} else if text == "" || hexDigits.MatchString(text) {
		problem = fmt.Sprintf("has %d", len(text))
	}
	d.error(attr.Expr.Range(), "Invalid checksum", "sha256 has %d hex digits, this one %s. To get it, run `sha256sum %s` on a host whose file you trust.", digestLength, problem, path)
	return ""
}

// needed is whether an argument that has to be there is: null is as wrong as nothing.
func (d *decoder) needed(attr *hclsyntax.Attribute) bool {
	if attr == nil {
		return false
	}
	value, ok := d.value(attr.Expr)
	if ok && value.IsNull() {
		d.error(attr.Expr.Range(), "Missing required argument", "%s cannot be null here: write its value.", attr.Name)
	}
	return ok && !value.IsNull()
}

// pluginArgs are the words after the program's name.
func (d *decoder) pluginArgs(attr *hclsyntax.Attribute) []string {
	if attr == nil {
		return nil
	}
	words, ok := d.elements(attr.Expr)
	if !ok && d.isSet(attr) {
		d.noWordList(attr)
	}
	var args []string
	for _, word := range words {
		args = append(args, d.word(word, "args"))
	}
	return args
}
