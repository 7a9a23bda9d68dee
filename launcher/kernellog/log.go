//go:build linux

package kernellog

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Log is the log from some place on.
type Log struct{ fd int }

// Open opens the log at path, at its beginning, or at its end for what is going to be
// written. Its error is the kernel's: users may be kept out (kernel.dmesg_restrict of
// sysctl), and containers often have no such file.
func Open(path string, atEnd bool) (*Log, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	whence := unix.SEEK_SET
	if atEnd {
		whence = unix.SEEK_END
	}
	if _, err := unix.Seek(fd, 0, whence); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Log{fd: fd}, nil
}

// Close gives the log up.
func (l *Log) Close() { unix.Close(l.fd) }

const (
	maxRecord  = 8 << 10 // more than the kernel gives in one read
	maxRecords = 100_000 // more than the kernel keeps
)

// Each hands on the records that are there and were not handed on before.
func (l *Log) Each(see func(Record)) {
	record := make([]byte, maxRecord)
	for range maxRecords {
		n, err := unix.Read(l.fd, record)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR) {
			continue // records were overwritten before they were read
		}
		if err != nil || n == 0 {
			return
		}
		parse(string(record[:n]), see)
	}
}
