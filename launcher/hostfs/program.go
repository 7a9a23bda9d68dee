package hostfs

import (
	"cmp"
	"path"
	"strings"
)

// LookPath finds a program as execvp(3) does: in the folders of a list such as PATH, or, if it
// has a slash, by its path; both below workdir if they are relative. "": there is none that may
// be executed.
func (r Root) LookPath(program, folders, workdir string) string {
	if strings.Contains(program, "/") {
		if file := Absolute(program, workdir); r.IsProgram(file) {
			return file
		}
		return ""
	}
	for dir := range strings.SplitSeq(folders, ":") {
		if file := Absolute(path.Join(cmp.Or(dir, "."), program), workdir); r.IsProgram(file) {
			return file
		}
	}
	return ""
}

// Absolute is a path below workdir, if it is relative.
func Absolute(file, workdir string) string {
	if path.IsAbs(file) {
		return path.Clean(file)
	}
	return path.Join("/", workdir, file)
}
