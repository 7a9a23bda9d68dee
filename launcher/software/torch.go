package software

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// torch reads the versions of torch and NCCL in an installation. One that was not found is
// empty, and why says why.
func (f finder) torch(p python) (version, nccl, why string) {
	for _, dir := range p.folders {
		version, cuda := f.torchIn(dir)
		if version == "" {
			continue
		}
		if cuda == "None" {
			return version, "", fmt.Sprintf("torch %s is made without CUDA", version)
		}
		if nccl := f.nccl(p, version); nccl != "" {
			return version, nccl, ""
		}
		return version, "", fmt.Sprintf("torch %s has NCCL built in, or loads one that does not tell its version", version)
	}
	if len(p.folders) == 0 {
		return "", "", fmt.Sprintf("%s has no folder of packages", p.prefix)
	}
	return "", "", "there is no torch in " + strings.Join(p.folders, ", ")
}

// versionLine and cudaLine are of torch/version.py, which its build writes:
// __version__ = '2.4.0+cu121', cuda: Optional[str] = '12.1'.
var (
	versionLine = regexp.MustCompile(`(?m)^__version__ *(?::[^=]*)?= *['"]([^'"]+)['"]`)
	cudaLine    = regexp.MustCompile(`(?m)^cuda *(?::[^=]*)?= *['"]?([^'"\s]+)`)
)

// torchIn reads a folder's torch: from its own file, else from what pip noted down.
func (f finder) torchIn(dir string) (version, cuda string) {
	text := f.root.Read(dir + "/torch/version.py")
	if m := cudaLine.FindStringSubmatch(text); m != nil {
		cuda = m[1]
	}
	if m := versionLine.FindStringSubmatch(text); m != nil {
		return m[1], cuda
	}
	return f.installed(dir, "torch"), cuda
}

// installed is a package's version by the folder NAME-VERSION.dist-info that pip leaves
// beside it (the PyPA's specification of installed projects).
func (f finder) installed(dir, name string) string {
	for _, entry := range f.root.Names(dir) {
		project, isInfo := strings.CutSuffix(entry, ".dist-info")
		if version, is := strings.CutPrefix(project, name+"-"); isInfo && is {
			return version
		}
	}
	return ""
}

// nccl finds the NCCL that a torch loads: the wheel that it depends on, conda's package,
// or the system's library for a torch that was made for that. Wheels of older torch, and
// the package of the conda channel pytorch, have it built in; a library of the system's is
// not what those use.
func (f finder) nccl(p python, torch string) string {
	for _, dir := range p.folders {
		for _, cuda := range []string{"cu13", "cu12", "cu11"} {
			if version := f.installed(dir, "nvidia_nccl_"+cuda); version != "" {
				return version
			}
		}
	}
	if version := f.condaPackage(p.prefix, "nccl"); version != "" {
		return version
	}
	_, local, _ := strings.Cut(torch, "+")
	if strings.HasPrefix(local, "cu") || f.condaPackage(p.prefix, "pytorch") != "" {
		return ""
	}
	return f.systemNCCL(p)
}

// condaPackage reads the name of a file conda-meta/NAME-VERSION-BUILD.json.
func (f finder) condaPackage(prefix, name string) string {
	for _, file := range f.root.Names(prefix + "/conda-meta") {
		rest, is := strings.CutPrefix(file, name+"-")
		parts := strings.Split(rest, "-")
		if is && len(parts) == 2 && strings.HasSuffix(file, ".json") {
			return parts[0]
		}
	}
	return ""
}

// systemNCCL reads the version off the file that the library's link leads to:
// libnccl.so.2 -> libnccl.so.2.22.3. The folders are the loader's (ld.so(8)), as far as a
// list of them goes.
func (f finder) systemNCCL(p python) string {
	folders := slices.DeleteFunc(strings.Split(f.environ["LD_LIBRARY_PATH"], ":"), func(dir string) bool { return !path.IsAbs(dir) })
	folders = append(folders, p.prefix+"/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/usr/lib64", "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/local/nccl/lib", "/opt/nccl/build/lib")
	for _, dir := range folders {
		file := f.root.Resolve(path.Join(dir, "libnccl.so.2"))
		if version, is := strings.CutPrefix(path.Base(file), "libnccl.so."); is && strings.Contains(version, ".") {
			return version
		}
	}
	return ""
}
