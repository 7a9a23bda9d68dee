package external

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Program is a plugin as the job file names it.
type Program struct {
	Name string // what the plugin is called in texts, and the source of what it finds
	Path string // absolute
	Args []string
	// SHA256 is the sum of the program in hexadecimal. Empty, which only muster's own
	// programs may have, is not checked: they came by a way that was.
	SHA256 string
	// Env is the plugin's environment, but for what the protocol adds; nothing of this
	// process's own is passed on.
	Env []string
	// SocketDir is a folder of this user's own (0700) for sockets; its path is at most 75
	// bytes long, for the kernel allows 107 for a socket's. Empty: one is made.
	SocketDir string
	// StartLimit is how long the program may take to be ready; 0: 10 s.
	StartLimit time.Duration
	// ProbeLimit is how long an answer may take; 0: 30 s. NVIDIA's driver alone takes some
	// seconds a GPU to load where nothing keeps it loaded.
	ProbeLimit time.Duration
	// WatchMargin is how much longer than requested a wait for events may take; 0: 10 s.
	WatchMargin time.Duration
	// killLimit is how long a killed process may take to be gone, with all that was about it.
	killLimit time.Duration
}

// maxSocketDir leaves room for two names of up to 17 bytes.
const maxSocketDir = 75

func (p Program) withDefaults() Program {
	p.StartLimit = cmp.Or(p.StartLimit, 10*time.Second)
	p.ProbeLimit = cmp.Or(p.ProbeLimit, 30*time.Second)
	p.WatchMargin = cmp.Or(p.WatchMargin, 10*time.Second)
	p.killLimit = cmp.Or(p.killLimit, 3*time.Second)
	return p
}

func (p Program) error(kind Kind, err error, format string, args ...any) *Error {
	return &Error{Name: p.Name, Path: p.Path, Kind: kind, Err: err, Text: fmt.Sprintf(format, args...)}
}

func (p Program) fault(err error, format string, args ...any) *Error {
	return p.error(KindFailed, err, format, args...)
}

func (p Program) closed() *Error { return p.error(KindClosed, nil, "it was closed") }

// makeSocketDir makes the folder for the socket of one process.
func (p Program) makeSocketDir() (string, error) {
	if len(p.SocketDir) > maxSocketDir {
		return "", p.fault(nil, "the path of the folder for its socket is longer than %d bytes: %s", maxSocketDir, p.SocketDir)
	}
	dir, err := os.MkdirTemp(p.SocketDir, "")
	if err != nil {
		return "", p.fault(err, "make a folder for its socket: %v", err)
	}
	return dir, nil
}

// open opens and checks the program. What it returns is what is to be executed.
func (p Program) open() (*os.File, error) {
	if !filepath.IsAbs(p.Path) {
		return nil, p.fault(nil, "its path is not absolute: write it from / on")
	}
	// A named pipe must not hold up who opens it.
	file, err := os.OpenFile(p.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, p.fault(err, "there is no such file on this host: install it, or correct the path in the job file")
		case errors.Is(err, fs.ErrPermission):
			return nil, p.fault(err, "this user may not read it, which checking it takes: chmod a+rx it and its folders")
		}
		return nil, p.fault(err, "it cannot be opened: %v", err)
	}
	if err := p.check(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (p Program) check(file *os.File) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return p.fault(err, "look at it: %v", err)
	case info.IsDir():
		return p.fault(nil, "it is a folder: name the program in it")
	case !info.Mode().IsRegular():
		return p.fault(nil, "it is not a file (%s)", info.Mode().Type())
	case info.Mode()&0o111 == 0:
		return p.fault(nil, "it is not executable: chmod a+x it")
	case p.SHA256 == "":
		return nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return p.fault(err, "read it: %v", err)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if !strings.EqualFold(sum, p.SHA256) {
		return p.fault(nil, "its sha256 is %s, and the job file says %s: if you changed it, write the new sha256 in the job "+
			"file (sha256sum %s)", cut(sum, 12), cut(p.SHA256, 12), p.Path)
	}
	return nil
}

// startFailure says why the kernel does not execute the program.
func (p Program) startFailure(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		// The file itself is open: what is missing is what it names.
		return p.fault(err, "the loader or interpreter that it names in its head is not on this host")
	case errors.Is(err, syscall.ENOEXEC):
		return p.fault(err, "the kernel does not know its format: it is built for another machine, or a script without #! in "+
			"its first line")
	case errors.Is(err, syscall.EACCES):
		return p.fault(err, "this user may not execute it: see its mode and interpreter, and whether its file system is "+
			"mounted noexec")
	default:
		return p.fault(err, "start it: %v", err)
	}
}
