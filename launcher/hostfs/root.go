// Package hostfs reads the files of a host: of this one, or of a tree that stands for one.
package hostfs

import (
	"os"
	"path"
	"strings"
)

// Root is where the host's files are looked for; tests give another.
type Root string

// Read returns a file's text without the space around it, "" where there is none.
func (r Root) Read(path string) string {
	text, err := os.ReadFile(string(r) + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Names lists a folder by name. A folder that is not there has nothing in it.
func (r Root) Names(dir string) []string {
	f, err := os.Open(string(r) + dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// Exists reports whether something is at a path.
func (r Root) Exists(path string) bool {
	_, err := os.Stat(string(r) + path)
	return err == nil
}

// IsProgram reports whether there is a file that may be executed.
func (r Root) IsProgram(file string) bool {
	info, err := os.Stat(string(r) + r.Resolve(file))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// maxLinks is how many symbolic links the kernel follows (path_resolution(7)).
const maxLinks = 40

// Resolve follows the symbolic links of a path, an absolute one from the root. What
// cannot be followed stays as it is.
func (r Root) Resolve(file string) string {
	done, todo, links := "/", path.Clean("/"+file), 0
	for todo != "" {
		var name string
		name, todo, _ = strings.Cut(strings.TrimPrefix(todo, "/"), "/")
		next := path.Join(done, name)
		target, err := os.Readlink(string(r) + next)
		if err != nil || links == maxLinks {
			done = next
			continue
		}
		links++
		if !path.IsAbs(target) {
			target = path.Join(done, target)
		}
		done, todo = "/", strings.TrimSuffix(path.Clean(target)+"/"+todo, "/")
	}
	return done
}

// BaseName is the last name of what a link of sysfs leads to, such as a driver's.
func (r Root) BaseName(link string) string {
	if !r.Exists(link) {
		return ""
	}
	return path.Base(r.Resolve(link))
}
