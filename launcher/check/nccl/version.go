package nccl

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Release is a release of NCCL or torch. The zero value is one that is not known.
type Release struct{ Major, Minor, Patch int }

// Version is what was found on a host. Of what is not known, only what holds for all
// releases is said.
type Version struct{ NCCL, Torch Release }

// ParseVersion reads the two versions as programs show them: "2.20.5", "2.4.0+cu121",
// "2.27.3-1". What it cannot read is not known.
func ParseVersion(nccl, torch string) Version {
	return Version{parseRelease(nccl), parseRelease(torch)}
}

func parseRelease(text string) Release {
	text = strings.TrimPrefix(strings.TrimSpace(text), "v")
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return Release{}
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(leadingDigits(parts[1]))
	if err1 != nil || err2 != nil || major < 0 {
		return Release{}
	}
	patch := 0
	if len(parts) == 3 {
		patch, _ = strconv.Atoi(leadingDigits(parts[2])) // a development release may have none
	}
	return Release{major, minor, patch}
}

func leadingDigits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}

func (r Release) known() bool { return r != Release{} }

// before is whether r is known to be older than other; false where other is not set.
func (r Release) before(other Release) bool {
	return r.known() && other.known() && r.compare(other) < 0
}

// since is whether r is known to be other or newer; false where other is not set.
func (r Release) since(other Release) bool {
	return r.known() && other.known() && r.compare(other) >= 0
}

func (r Release) compare(other Release) int {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor), cmp.Compare(r.Patch, other.Patch))
}

func (r Release) String() string {
	if r.Patch == 0 {
		return fmt.Sprintf("%d.%d", r.Major, r.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch)
}

// at is a release in the tables.
func at(minor int, patch ...int) Release {
	r := Release{Major: 2, Minor: minor}
	if len(patch) > 0 {
		r.Patch = patch[0]
	}
	return r
}
