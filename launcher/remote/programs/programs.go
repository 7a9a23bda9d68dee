// Package programs has muster's own programs at hand, to be put on hosts: those
// that the launcher carries, and the launcher itself. It knows platforms and
// content, and nothing of hosts.
package programs

import (
	"compress/gzip"
	"errors"
	"io"
)

// Binary is one of muster's programs for one platform.
type Binary struct {
	Hash string // of the content, in hex; names the file on the host
	Size int64  // uncompressed, in bytes
	// Args precede the arguments of every launch: {"agent"} where muster itself
	// stands in for muster-agent.
	Args []string
	// Gzip opens the gzip-compressed content and tells its compressed size.
	Gzip func() (io.ReadCloser, int64, error)
}

// Programs finds muster's programs by name and platform, such as "muster-agent",
// "linux", "amd64". Platforms lists what is carried. Calls come from several
// goroutines.
type Programs interface {
	Find(program, goos, goarch string) (Binary, error)
	Platforms(program string) [][2]string
}

// Unpacked opens a program's content uncompressed.
func (b Binary) Unpacked() (io.ReadCloser, error) {
	packed, _, err := b.Gzip()
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return nil, errors.Join(err, packed.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, packed}, nil
}
