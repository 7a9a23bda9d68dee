package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sort"
	"strings"
)

// Carried are the programs inside the launcher: gzip files NAME-GOOS-GOARCH.gz
// and an index.json of the form
//
//	{"muster-agent": {"linux/amd64": {"hash": "…", "size": 123}}}
//
// Where a program is not carried for the launcher's own platform, the running
// executable stands in for it: muster as it is, muster-agent as "muster agent".
type Carried struct {
	files fs.FS
	index map[string]map[string]carriedFile
	self  *executable
}

var _ Programs = (*Carried)(nil)

type carriedFile struct {
	Hash string `json:"hash"`
	Size int64  `json:"size"`
}

// standIns are the arguments that make the running executable the program.
var standIns = map[string][]string{"muster": nil, "muster-agent": {"agent"}}

// NewCarried reads the index of files; where there is none, nothing is carried.
func NewCarried(files fs.FS) (*Carried, error) {
	c := &Carried{files: files, self: self}
	text, err := fs.ReadFile(files, "index.json")
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the index of carried programs: %w", err)
	}
	if err := json.Unmarshal(text, &c.index); err != nil {
		return nil, fmt.Errorf("read the index of carried programs: %w", err)
	}
	return c, nil
}

// Platforms lists for which platforms a program is there.
func (c *Carried) Platforms(program string) [][2]string {
	var out [][2]string
	for platform := range c.index[program] {
		goos, goarch, _ := strings.Cut(platform, "/")
		out = append(out, [2]string{goos, goarch})
	}
	sort.Slice(out, func(i, j int) bool { return out[i][0]+out[i][1] < out[j][0]+out[j][1] })
	own := [2]string{runtime.GOOS, runtime.GOARCH}
	if _, stands := standIns[program]; stands && !slices.Contains(out, own) {
		out = append(out, own)
	}
	return out
}

// Find finds a program for a platform.
func (c *Carried) Find(program, goos, goarch string) (Binary, error) {
	platform := goos + "/" + goarch
	if file, ok := c.index[program][platform]; ok {
		open := func() (io.ReadCloser, int64, error) { return c.open(program + "-" + goos + "-" + goarch + ".gz") }
		return Binary{Hash: file.Hash, Size: file.Size, Gzip: open}, nil
	}
	args, stands := standIns[program]
	if !stands || goos != runtime.GOOS || goarch != runtime.GOARCH {
		return Binary{}, fmt.Errorf("this muster carries no %s for %s", program, platform)
	}
	hash, size, err := c.self.hash()
	if err != nil {
		return Binary{}, err
	}
	return Binary{Hash: hash, Size: size, Args: args, Gzip: c.self.open}, nil
}

func (c *Carried) open(name string) (io.ReadCloser, int64, error) {
	f, err := c.files.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
