package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// crossCompilers are the names that Debian and most others give to C compilers for another
// kind of machine.
var crossCompilers = map[string]string{"linux/amd64": "x86_64-linux-gnu-gcc", "linux/arm64": "aarch64-linux-gnu-gcc"}

// compiler is a C compiler that makes programs for hosts of a kind.
type compiler struct {
	command string
	glibc   bool // they use this C library, and not musl
}

// compilerFor finds one that has the headers of its C library too; nil: there is none here.
func compilerFor(platform string) *compiler {
	command := crossCompilers[platform]
	if platform == runtime.GOOS+"/"+runtime.GOARCH {
		command = cmp.Or(os.Getenv("CC"), "gcc")
	}
	words := strings.Fields(command) // CC may hold arguments
	if len(words) == 0 {
		return nil
	}
	args := append(words[1:], "-E", "-dM", "-include", "stdlib.h", "-include", "dlfcn.h", "-x", "c", os.DevNull)
	macros, err := exec.Command(words[0], args...).Output()
	if err != nil {
		return nil
	}
	return &compiler{command, bytes.Contains(macros, []byte("#define __GLIBC__ "))}
}

// nvmlPlugin is the program that needs cgo. It is linked so that a function of NVML which
// the driver of a host lacks matters when it is called, not at the start (some compilers
// have it the other way round), and with Go's own resolver, which needs no C library.
func nvmlPlugin(platform string, c *compiler) (program, error) {
	cflags := "-O2 -Wno-deprecated-declarations" // go-nvml wraps what is deprecated too
	ldflags := "-O2 -Wl,-z,lazy"
	if c.glibc && crossCompilers[platform] != "" {
		header, err := filepath.Abs("cmd/carry/oldlibc.h")
		if err != nil {
			return program{}, err
		}
		cflags += fmt.Sprintf(" -include '%s'", header)
		ldflags += " -Wl,--wrap=__libc_start_main -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2"
	}
	return program{name: "muster-plugin-nvml", tags: "netgo,osusergo", env: []string{
		"CGO_ENABLED=1", "CC=" + c.command, "CGO_CFLAGS=" + cflags, "CGO_LDFLAGS=" + ldflags,
	}}, nil
}
