package facts

import (
	"os"
	"path"
	"strings"
)

// Root is where the host's files are looked for; tests give another.
type Root string

// read returns a file's text without the space around it, "" where there is none.
func (r Root) read(path string) string {
	text, err := os.ReadFile(string(r) + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// names lists a folder by name. A folder that is not there has nothing in it.
func (r Root) names(dir string) []string {
	f, err := os.Open(string(r) + dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

func (r Root) exists(path string) bool {
	_, err := os.Stat(string(r) + path)
	return err == nil
}

// isProgram reports whether there is a file that may be executed.
func (r Root) isProgram(file string) bool {
	info, err := os.Stat(string(r) + r.resolve(file))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// maxLinks is how many symbolic links the kernel follows (path_resolution(7)).
const maxLinks = 40

// resolve follows the symbolic links of a path, an absolute one from the root. What
// cannot be followed stays as it is.
func (r Root) resolve(file string) string {
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
