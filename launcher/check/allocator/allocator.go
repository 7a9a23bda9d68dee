// Package allocator knows the settings of PyTorch's caching allocator for GPU memory: a table of which version of torch
// reads which key, and pure functions that say under which variable and what torch makes of the rest. A key that a
// version does not know ends the program at its first use of a GPU, so that nothing is written but what is known to be
// read.
//
// Facts are from PyTorch's documentation ("CUDA semantics", Optimizing memory usage) and from its source:
// c10/cuda/CUDAAllocatorConfig.{h,cpp}, c10/core/AllocatorConfig.{h,cpp} and c10/cuda/CUDACachingAllocator.cpp. Which
// release knows which key, and which variable wins, was seen in the libraries and headers of the released wheels of
// 1.13.1 to 2.15.0.
package allocator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Severities of a finding.
const (
	Fail = "fail" // torch stops at its first use of a GPU, or what was asked for cannot be
	Warn = "warn" // something does not do what it seems to
	Info = "info" // for the record
)

// Codes of findings.
const (
	CodeMalformed   = "allocator_malformed"     // no list of settings
	CodeUnknownKey  = "allocator_unknown_key"   // no version has it
	CodeVersion     = "allocator_version"       // this version has not
	CodeValue       = "allocator_value"         // out of range, or of another form
	CodePair        = "allocator_pair"          // one setting makes another idle
	CodeNames       = "allocator_names"         // a variable that is not read
	CodeOverridden  = "allocator_overridden"    // somebody else's value holds
	CodeNoVersion   = "allocator_torch_unknown" // the version of torch is not known
	CodeFractionOff = "allocator_no_fraction"   // memory_fraction cannot come from outside
)

// Finding is something to say of allocator settings.
type Finding struct {
	Code     string
	Severity string
	Key      string // torch's name of the setting; "" where it is about the text as a whole
	Message  string
}

func finding(code, severity, key, format string, args ...any) Finding {
	return Finding{Code: code, Severity: severity, Key: key, Message: fmt.Sprintf(format, args...)}
}

// The variables that the allocator's settings can stand in.
const (
	CUDAName    = "PYTORCH_CUDA_ALLOC_CONF"
	HIPName     = "PYTORCH_HIP_ALLOC_CONF"
	GeneralName = "PYTORCH_ALLOC_CONF"
)

// Names are all of them, in the order in which torch looks: the first that is set, be it to nothing, is read and the
// others are not. (The documentation calls PYTORCH_CUDA_ALLOC_CONF an alias of PYTORCH_ALLOC_CONF; where both are set,
// 2.10 to 2.15 take the alias.)
var Names = []string{CUDAName, HIPName, GeneralName}

// version is a release of torch. The zero value is one that is not known.
type version struct {
	major, minor int
	before       bool // a build on the way to that release: it may lack what is new in it
	rocm         bool // made for AMD's GPUs
}

// Releases that change more than a key.
var (
	// readsGeneral reads PYTORCH_ALLOC_CONF for CUDA too, and parses otherwise: whole words of white space are left
	// out, and minimums are reached at their value.
	readsGeneral = torch(2, 10)
	// assumed is what a version that is not known is taken for.
	assumed = torch(2, 1)
	// newest takes whatever any release takes.
	newest = torch(1000, 0)
	// largeSegments can be told the size of large segments.
	largeSegments = torch(2, 11)
	// listsDivisions can have a list for roundup_power2_divisions, and zeroInList a 0 in it, for no rounding.
	listsDivisions = torch(2, 0)
	zeroInList     = torch(2, 4)
)

// torch is a release.
func torch(major, minor int) version { return version{major: major, minor: minor} }

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

// read are the names that this version looks at for its GPUs' memory. PYTORCH_ALLOC_CONF is in 2.9 already, but what
// serves CUDA there reads the old name only.
func (v version) read() []string {
	switch {
	case !v.known() || v.has(readsGeneral):
		return Names
	case v.rocm && v.has(torch(2, 8)):
		return []string{CUDAName, HIPName}
	case v.rocm:
		return []string{HIPName, CUDAName}
	}
	return []string{CUDAName}
}

// written are the names that settings are written under. Where several are read they are all written alike, so that
// nothing hangs on which of them wins.
func (v version) written() []string {
	switch {
	case v.rocm:
		return v.read()
	case !v.known() || v.has(readsGeneral):
		return []string{CUDAName, GeneralName}
	}
	return []string{CUDAName}
}
