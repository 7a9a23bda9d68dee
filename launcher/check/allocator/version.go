package allocator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// version is a release of torch. The zero value is one that is not known.
type version struct {
	major, minor int
	before       bool // a build on the way to that release: it may lack what is new in it
	rocm         bool // made for AMD's GPUs
}

// versionForm begins as PEP 440 has versions: 2.4.0+cu121, 2.10.0.dev20251001, 2.8.0a0+52.
var versionForm = regexp.MustCompile(`^([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]+)*(a[0-9]*|\.dev)?`)

// parseVersion reads what torch.__version__ says; what is none is not known.
func parseVersion(text string) version {
	m := versionForm.FindStringSubmatch(text)
	if m == nil {
		return version{}
	}
	major, _ := strconv.Atoi(m[1]) // the form has digits only
	minor, _ := strconv.Atoi(m[2])
	_, local, _ := strings.Cut(text, "+")
	return version{major: major, minor: minor, before: m[3] != "", rocm: strings.Contains(local, "rocm")}
}

func (v version) known() bool { return v.major > 0 }

// has is whether what came with release is there.
func (v version) has(release version) bool {
	if v.major != release.major {
		return v.major > release.major
	}
	return v.minor > release.minor || v.minor == release.minor && !v.before
}

func (v version) String() string {
	if !v.known() || v == newest {
		return "torch"
	}
	return fmt.Sprintf("torch %d.%d", v.major, v.minor)
}

// torch is a release, as the table of keys names them.
func torch(major, minor int) version { return version{major: major, minor: minor} }

// Releases that change more than a key.
var (
	anyRelease = torch(1, 9)
	// readsGeneral reads PYTORCH_ALLOC_CONF for CUDA too, and parses anew: whole words of
	// white space are left out, and minimums are reached at their value.
	readsGeneral = torch(2, 10)
	// assumed is what a version that is not known is taken for.
	assumed = torch(2, 1)
	// newest takes whatever any release takes.
	newest = torch(1000, 0)
)
