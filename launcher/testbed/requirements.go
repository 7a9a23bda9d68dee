//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotRoot says that a bed needs root.
var ErrNotRoot = errors.New("testbed: namespaces, mounts and links need root")

// needed lists the programs a bed runs and the Debian packages they come in.
var needed = []struct{ program, pkg string }{
	{"ip", "iproute2"},
	{"tc", "iproute2"},
	{"nft", "nftables"},
	{"sshd", "openssh-server"},
}

// requirements returns what the machine lacks, all of it at once.
func requirements() error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	var missing []error
	for _, n := range needed {
		if _, err := os.Stat(tool(n.program)); err != nil {
			missing = append(missing, fmt.Errorf("testbed: no %s on this machine: apt-get install %s", n.program, n.pkg))
		}
	}
	return errors.Join(missing...)
}

// tool returns the path of a system program. PATH often lacks the sbin folders.
func tool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			return abs
		}
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}
