package programs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// executable is the running program's file, hashed and compressed at most once.
type executable struct {
	path   func() (string, error)
	hash   func() (string, int64, error)
	packed func() ([]byte, error)
}

var self = newExecutable(ownPath)

// ownPath is the file of this process. Linux knows it even when the file was
// replaced meanwhile.
func ownPath() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

func newExecutable(path func() (string, error)) *executable {
	e := &executable{path: path}
	type sum struct {
		hash string
		size int64
	}
	once := sync.OnceValues(func() (sum, error) {
		hash, size, err := e.digest()
		return sum{hash, size}, err
	})
	e.hash = func() (string, int64, error) {
		s, err := once()
		return s.hash, s.size, err
	}
	e.packed = sync.OnceValues(e.pack)
	return e
}

func (e *executable) read(w io.Writer) (int64, error) {
	path, err := e.path()
	if err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(w, f)
}

func (e *executable) digest() (string, int64, error) {
	h := sha256.New()
	size, err := e.read(h)
	if err != nil {
		return "", 0, fmt.Errorf("read the running program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

func (e *executable) pack() ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := e.read(z); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (e *executable) open() (io.ReadCloser, int64, error) {
	packed, err := e.packed()
	if err != nil {
		return nil, 0, fmt.Errorf("compress the running program: %w", err)
	}
	return io.NopCloser(bytes.NewReader(packed)), int64(len(packed)), nil
}
