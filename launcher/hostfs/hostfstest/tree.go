// Package hostfstest makes trees of files that stand for a host's, for tests.
package hostfstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// Tree makes a host's files in a folder of their own: a path and a text each; a text that
// begins with "-> " is a symbolic link to what follows.
func Tree(t testing.TB, files map[string]string) hostfs.Root {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "-> ")
		var err error
		if isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return hostfs.Root(root)
}

// Merge puts trees together.
func Merge(trees ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, files := range trees {
		for path, text := range files {
			all[path] = text
		}
	}
	return all
}
