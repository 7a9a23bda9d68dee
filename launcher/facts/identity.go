//go:build linux

package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
)

// Identity tells running systems apart: the boot id (new at each boot) with the
// network and pid namespaces, so that containers on one machine are hosts of
// their own. The machine-id would not do: clones share it. The namespaces'
// inode numbers are what the links in /proc/self/ns name (namespaces(7)).
func Identity(root Root) string {
	network, _ := os.Readlink(string(root) + "/proc/self/ns/net")
	pids, _ := os.Readlink(string(root) + "/proc/self/ns/pid")
	sum := sha256.Sum256([]byte(root.Read("/proc/sys/kernel/random/boot_id") + " " + network + " " + pids))
	return hex.EncodeToString(sum[:8])
}
