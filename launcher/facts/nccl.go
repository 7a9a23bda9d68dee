//go:build linux

package facts

import (
	"os"
	"path"
	"slices"
	"strings"
)

// ncclFiles reads what NCCL reads of itself at each start: NCCL_CONF_FILE, or else
// ~/.nccl.conf, and then /etc/nccl.conf (NCCL user guide, Environment Variables). Lines are
// NAME=VALUE; # begins a comment.
func ncclFiles(root Root, home string) []NCCLFile {
	own := os.Getenv("NCCL_CONF_FILE")
	if own == "" && home != "" {
		own = path.Join(home, ".nccl.conf")
	}
	var found []NCCLFile
	for _, file := range []string{own, "/etc/nccl.conf"} {
		text := ""
		if path.IsAbs(file) {
			text = root.Read(file)
		}
		values := map[string]string{}
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, "#")
			name, value, is := strings.Cut(strings.TrimSpace(line), "=")
			if !is {
				continue
			}
			if slices.Contains(secretVariables, name) {
				value = Hidden
			}
			values[name] = value
		}
		if len(values) > 0 {
			found = append(found, NCCLFile{Path: file, Values: values})
		}
	}
	return found
}
