package software

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// behindShim finds the program that a shim of pyenv is going to start: the shim is a shell
// script that asks pyenv which version counts in this folder. "" where file is no shim, or
// that version does not have the program.
func (f finder) behindShim(file string) string {
	dir, name := path.Split(file)
	home := path.Dir(path.Clean(dir))
	if path.Base(dir) != "shims" || !f.root.Exists(home+"/versions") {
		return ""
	}
	for _, version := range f.pyenvVersions(home) {
		if program := f.ofVersion(home, version, name); program != "" {
			return program
		}
	}
	return ""
}

// pyenvVersions are those that count, the first that has a program first: of the variable
// PYENV_VERSION, of the nearest file .python-version, or of pyenv's own file version.
func (f finder) pyenvVersions(home string) []string {
	if set := f.environ["PYENV_VERSION"]; set != "" {
		return strings.Split(set, ":")
	}
	for dir := path.Join("/", f.workdir); ; dir = path.Dir(dir) {
		if text := f.root.Read(dir + "/.python-version"); text != "" {
			return strings.Fields(text)
		}
		if dir == "/" {
			break
		}
	}
	return strings.Fields(cmp.Or(f.root.Read(home+"/version"), "system"))
}

// ofVersion looks for a version's program. 3.11 stands for the newest 3.11.x, and system
// for what PATH has besides the shims.
func (f finder) ofVersion(home, version, name string) string {
	if version == "system" {
		rest := slices.DeleteFunc(strings.Split(f.environ["PATH"], ":"), func(dir string) bool { return path.Clean(dir) == home+"/shims" })
		system := finder{root: f.root, workdir: f.workdir, environ: map[string]string{"PATH": strings.Join(rest, ":")}}
		file, _ := system.lookup(name)
		return file
	}
	installed := f.root.Names(home + "/versions")
	slices.SortFunc(installed, hostfs.Natural)
	for _, v := range slices.Backward(installed) {
		if v == version || strings.HasPrefix(v, version+".") && !slices.Contains(installed, version) {
			if program := path.Join(home, "versions", v, "bin", name); f.root.IsProgram(program) {
				return program
			}
		}
	}
	return ""
}
