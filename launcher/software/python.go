package software

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// python is an installation of Python: where it looks for packages, first to last, as
// site.py of the standard library does.
type python struct {
	prefix  string // of the environment: a venv's, conda's, /usr
	version string // as exactly as it is told, "" where it is not
	folders []string
}

// python finds the installation that an interpreter belongs to. A venv is known by the
// file pyvenv.cfg beside the interpreter or one up, before any link is followed: the
// interpreter of most venvs is a link to the one they were made by.
func (f finder) python(file string) python {
	prefix, config := f.venv(file)
	base := f.root.Resolve(file)
	var p python
	for dir := range strings.SplitSeq(f.environ["PYTHONPATH"], ":") {
		if dir != "" {
			p.folders = append(p.folders, f.absolute(dir))
		}
	}
	version := cmp.Or(minor(config["version_info"]), minor(config["version"]), strings.TrimPrefix(path.Base(base), "python"))
	if prefix != "" {
		p.prefix = prefix
		p.folders = append(p.folders, f.sitePackages(prefix, version)...)
	}
	if prefix == "" || strings.EqualFold(config["include-system-site-packages"], "true") {
		basePrefix := path.Dir(path.Dir(base))
		p.prefix = cmp.Or(p.prefix, basePrefix)
		p.folders = append(p.folders, f.userPackages(basePrefix, version)...)
		p.folders = append(p.folders, f.systemPackages(basePrefix, version)...)
	}
	p.folders = f.withPaths(p.folders)
	p.version = f.versionOf(path.Dir(path.Dir(base)), version, config)
	return p
}

// venv looks for pyvenv.cfg (PEP 405).
func (f finder) venv(file string) (prefix string, config map[string]string) {
	for _, dir := range []string{path.Dir(file), path.Dir(path.Dir(file))} {
		text := f.root.Read(dir + "/pyvenv.cfg")
		if text == "" {
			continue
		}
		config = map[string]string{}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(line, "="); ok {
				config[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
			}
		}
		return dir, config
	}
	return "", nil
}

// patchLine is of patchlevel.h: #define PY_VERSION "3.11.7".
var patchLine = regexp.MustCompile(`(?m)^#define\s+PY_VERSION\s+"([0-9.]+)`)

// versionOf is the version of a Python: by the headers that conda, uv, pyenv and images of
// Python have beside it, by what a venv noted when it was made, or by the folder of its
// library, which tells the first two numbers.
func (f finder) versionOf(basePrefix, version string, config map[string]string) string {
	if minor(version) == "" {
		version = ""
		if names := f.pythons(basePrefix+"/lib", ""); len(names) == 1 {
			version = strings.TrimPrefix(names[0], "python")
		}
	}
	if m := patchLine.FindStringSubmatch(f.root.Read(basePrefix + "/include/python" + version + "/patchlevel.h")); m != nil {
		return m[1]
	}
	return cmp.Or(release(cmp.Or(config["version_info"], config["version"])), version)
}

// release shortens 3.11.7.final.0 to 3.11.7.
func release(version string) string {
	parts := strings.SplitN(version, ".", 4)
	return strings.Join(parts[:min(3, len(parts))], ".")
}

// minor shortens 3.11.7 to 3.11, by which folders are named.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// sitePackages are an installation's own, of the version if it is known, else of any.
func (f finder) sitePackages(prefix, version string) []string {
	var found []string
	for _, lib := range []string{"/lib", "/lib64"} {
		if f.root.Resolve(prefix+lib) != path.Clean(prefix+lib) && lib == "/lib64" {
			continue // a link to lib
		}
		for _, name := range f.pythons(prefix+lib, version) {
			found = append(found, prefix+lib+"/"+name+"/site-packages")
		}
	}
	return found
}

// pythons are the folders pythonX.Y below a lib: of this version, else of any.
func (f finder) pythons(lib, version string) []string {
	var all []string
	for _, name := range f.root.Names(lib) {
		if _, is := strings.CutPrefix(name, "python3."); is {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, hostfs.Natural)
	for _, name := range []string{"python" + version, "python" + version + "t"} {
		if slices.Contains(all, name) {
			return []string{name}
		}
	}
	return all
}

// userPackages are those of pip install --user, which come before the system's. The
// version of /usr/bin/python3 is its link's.
func (f finder) userPackages(basePrefix, version string) []string {
	home := f.environ["PYTHONUSERBASE"]
	if home == "" && f.environ["HOME"] != "" {
		home = f.environ["HOME"] + "/.local"
	}
	if home == "" || f.environ["PYTHONNOUSERSITE"] != "" {
		return nil
	}
	if minor(version) == "" {
		if names := f.pythons(basePrefix+"/lib", version); len(names) == 1 {
			version = strings.TrimPrefix(names[0], "python")
		}
	}
	return f.sitePackages(home, version)
}

// systemPackages are those of a base installation. Debian's has them in dist-packages, and
// what pip installs for it, as Fedora's too, below /usr/local.
func (f finder) systemPackages(prefix, version string) []string {
	var found []string
	local := prefix + "/local"
	for _, name := range f.pythons(local+"/lib", version) {
		found = append(found, local+"/lib/"+name+"/dist-packages")
	}
	if prefix == "/usr" {
		found = append(found, f.sitePackages(local, version)...)
	}
	found = append(found, f.sitePackages(prefix, version)...)
	for _, name := range f.pythons(prefix+"/lib", version) {
		found = append(found, prefix+"/lib/"+name+"/dist-packages")
	}
	return append(found, prefix+"/lib/python3/dist-packages")
}

// withPaths adds the folders that .pth files of the others name: so it is that packages
// stay where they are developed, or that one environment is put on another.
func (f finder) withPaths(folders []string) []string {
	var all []string
	for _, dir := range folders {
		if !f.root.Exists(dir) {
			continue
		}
		all = append(all, dir)
		for _, name := range f.root.Names(dir) {
			if !strings.HasSuffix(name, ".pth") {
				continue
			}
			for line := range strings.Lines(f.root.Read(dir + "/" + name)) {
				if line = strings.TrimSpace(line); path.IsAbs(line) && f.root.Exists(line) {
					all = append(all, path.Clean(line))
				}
			}
		}
	}
	return all
}
