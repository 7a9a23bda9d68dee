// Package version says which muster this is.
package version

import "runtime/debug"

// release is set by the linker (-X) in builds made by the Makefile.
var release string

// String is the version, such as "0.1.0" or "0.1.0-3-gabc1234"; "devel" where it was
// built without the Makefile from a checkout that has no version.
func String() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
