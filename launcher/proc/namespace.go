//go:build linux

package proc

import (
	"os"
	"sync"
)

// InFirstNamespace reports whether process numbers here are the machine's own; the kernel
// fixes the number of its namespace (PROC_PID_INIT_INO).
var InFirstNamespace = sync.OnceValue(func() bool {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return namespace == "pid:[4026531836]"
})
