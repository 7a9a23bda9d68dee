package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// path is a path on each host.
func (d *decoder) path(attr *hclsyntax.Attribute) string {
	path := d.string(attr)
	switch {
	case strings.HasPrefix(path, "~") && path != "~" && !strings.HasPrefix(path, "~/"):
		d.error(attr.Expr.Range(), "Invalid path", "Only ~/ (your own home on each host) is known; write another user's home in full.")
	case strings.HasPrefix(path, "$"):
		d.warn(attr.Expr.Range(), "Variable in a path", "No shell reads %s, so %q is a name as it stands. Write ~/ for your home.", attr.Name, path)
	}
	return path
}

// python is a path on each host, or the name of a program there.
func (d *decoder) python(attr *hclsyntax.Attribute) string {
	known := len(d.diags)
	path := d.path(attr)
	switch {
	case !d.isSet(attr) || len(d.diags) > known:
	case strings.TrimSpace(path) == "":
		d.error(attr.Expr.Range(), "Invalid path", "python is empty. Write a path such as \"~/venv/bin/python\", or leave python out to use the command's own.")
	case strings.HasSuffix(path, "/"):
		d.error(attr.Expr.Range(), "Invalid path", "%s is a folder. Write the interpreter in it, such as %s.", quoted(path), quoted(path+"bin/python"))
	case strings.ContainsAny(path, " \t\n") && !strings.Contains(path, "/"):
		d.error(attr.Expr.Range(), "Invalid path", "python is one program, as no shell reads it: %s has several words. Write its path, such as \"~/venv/bin/python\".", quoted(path))
	}
	return path
}
