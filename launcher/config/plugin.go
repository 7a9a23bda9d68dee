package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
)

var pluginSchema = decode.Schema{Where: "a plugin block", Args: []string{"path", "sha256", "args"}, Required: []string{"path", "sha256"}}

var (
	pluginName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)
	hexDigits  = regexp.MustCompile(`^[0-9A-Fa-f]+$`)
)

// digestLength is how many hex digits a SHA-256 has.
const digestLength = 64

// decodePlugin decodes a plugin block, nil where there is none.
func decodePlugin(b *decode.Block) *Plugin {
	if b == nil {
		return nil
	}
	b.Open(pluginSchema)
	if !b.Bare && !pluginName.MatchString(b.Label) {
		b.File.Error(b.NameAt, "Invalid plugin name", "%q: the name of a plugin is at most 63 letters, digits, '-' and '_', and does not begin with '-'.", b.Label)
	}
	p := &Plugin{Name: b.Label, Path: decodePluginPath(b.Arg("path")), Range: b.At}
	p.SHA256 = decodeDigest(b.Arg("sha256"), p.Path)
	if args := b.Arg("args"); args.IsSet() || args.Wrong() {
		p.Args, _ = decode.Words(args, "args")
	}
	return p
}

// decodePluginPath is where the program is on each host. It is started by what has no
// folder of its own there, so that a relative path would mean nothing.
func decodePluginPath(a *decode.Arg) string {
	path := decode.Text(a)
	advice := ""
	switch quoted := diagnostic.Quoted; {
	case !isNeeded(a) || a.Wrong():
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
	a.Error("Invalid path", "%s.", advice)
	return path
}

// decodeDigest is the digest of the plugin's file, in lower case.
func decodeDigest(a *decode.Arg, path string) string {
	text := strings.TrimSpace(decode.Text(a))
	if !isNeeded(a) || a.Wrong() {
		return ""
	}
	if len(text) == digestLength && hexDigits.MatchString(text) {
		return strings.ToLower(text)
	}
	if path == "" || len(path) > 60 {
		path = "FILE"
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(text), "sha256:"), " ")
	problem := "has other characters"
	if text == "" || hexDigits.MatchString(text) {
		problem = fmt.Sprintf("has %d", len(text))
	}
	if len(word) == digestLength && hexDigits.MatchString(word) {
		a.Error("Invalid checksum", "sha256 is the %d hex digits alone: write %q.", digestLength, word)
	} else {
		a.Error("Invalid checksum", "sha256 has %d hex digits, this one %s. To get it, run `sha256sum %s` on a host whose file you trust.", digestLength, problem, path)
	}
	return ""
}

// isNeeded is whether an argument that has to be there is: null is as wrong as nothing.
func isNeeded(a *decode.Arg) bool {
	value, ok := a.Value()
	if ok && value.IsNull() {
		a.Error("Missing required argument", "%s cannot be null here: write its value.", a.Name)
	}
	return ok && !value.IsNull()
}
