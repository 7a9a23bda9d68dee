//go:build linux

package proc

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Read appends a file of a process that the kernel writes in one piece, such as "stat", to
// into. Hundreds of these are read each second, and os.ReadFile makes ten system calls for
// each, most of them to find out that such a file cannot be waited for.
func Read(into []byte, pid int, name string) ([]byte, error) {
	var room [40]byte
	path := string(append(append(strconv.AppendInt(append(room[:0], "/proc/"...), int64(pid), 10), '/'), name...))
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return into, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		into = slices.Grow(into, 512) // most files are shorter
		n, err := again(func() (int, error) { return unix.Read(fd, into[len(into):cap(into)]) })
		if err != nil {
			return into, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		full := n == cap(into)-len(into)
		if into = into[:len(into)+n]; !full {
			return into, nil
		}
	}
}

// again repeats a system call that a signal has broken off.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
