package sshconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// maxDepth is how deep Include may nest; ssh has the same limit.
const maxDepth = 16

// directive is one line: a keyword and its arguments. Included files hang below
// their Include line, because they take effect at its place.
type directive struct {
	keyword  string
	args     []string
	criteria []criterion // of Match
	included [][]directive
	pos      Position
}

// loader reads files. Relative includes of the user's files are looked for in
// ~/.ssh, those of the system's in /etc/ssh.
type loader struct {
	home      string
	wantFinal bool
}

// Load reads the files in order; one that does not exist is empty. Tilde and
// relative includes count from home.
func Load(home string, paths ...string) (*Config, error) {
	l := &loader{home: home}
	cfg := &Config{}
	for _, path := range paths {
		directives, err := l.file(path, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		cfg.files = append(cfg.files, directives)
	}
	cfg.wantFinal = l.wantFinal
	return cfg, nil
}

func (l *loader) file(path string, depth int) ([]directive, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return l.parse(string(text), path, depth)
}

func (l *loader) parse(text, path string, depth int) ([]directive, error) {
	var out []directive
	for i, line := range strings.Split(text, "\n") {
		line = strings.Trim(line, blanks)
		if line == "" || line[0] == '#' {
			continue
		}
		d, err := l.line(line, Position{path, i + 1}, depth)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (l *loader) line(line string, pos Position, depth int) (directive, error) {
	keyword, rest := splitKeyword(line)
	d := directive{keyword: keyword, pos: pos}
	if rest == "" {
		return d, pos.errorf("nothing follows %s", keyword)
	}
	if takesRestOfLine[keyword] {
		d.args = []string{rest}
		return d, nil
	}
	args, err := words(rest)
	if err != nil {
		return d, pos.errorf("%v", err)
	}
	if len(args) == 0 {
		return d, pos.errorf("nothing follows %s", keyword)
	}
	d.args = args
	switch keyword {
	case "match":
		err = l.match(&d)
	case "include":
		err = l.include(&d, depth)
	}
	return d, err
}

// takesRestOfLine are commands for a shell, which does its own quoting.
var takesRestOfLine = map[string]bool{
	"proxycommand": true, "localcommand": true, "remotecommand": true, "knownhostscommand": true,
}

func (l *loader) include(d *directive, depth int) error {
	if depth >= maxDepth {
		return d.pos.errorf("Include nests deeper than %d files", maxDepth)
	}
	for _, arg := range d.args {
		paths, err := l.find(arg, d.pos)
		if err != nil {
			return err
		}
		for _, path := range paths {
			directives, err := l.file(path, depth+1)
			if err != nil {
				return includeError(d.pos, err)
			}
			d.included = append(d.included, directives)
		}
	}
	return nil
}

// find expands a path of an Include line.
func (l *loader) find(arg string, pos Position) ([]string, error) {
	path, err := ExpandEnv(arg)
	if err != nil {
		return nil, pos.errorf("Include %s: %v", arg, err)
	}
	path = ExpandTilde(path, l.home)
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.base(pos.File), path)
	}
	paths, err := filepath.Glob(path)
	if err != nil {
		return nil, pos.errorf("Include %s: %v", arg, err)
	}
	sort.Strings(paths)
	return paths, nil
}

func (l *loader) base(file string) string {
	if strings.HasPrefix(file, "/etc/ssh/") {
		return "/etc/ssh"
	}
	return filepath.Join(l.home, ".ssh")
}

func includeError(pos Position, err error) error {
	var inner *Error
	if errors.As(err, &inner) {
		return err
	}
	return pos.errorf("Include: %v", err)
}
