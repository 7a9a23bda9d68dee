package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/launcher/remote/programs"
)

// machines are what hosts call the platforms that muster-agent can be built for.
var machines = map[string][]string{
	"linux/amd64": {"Linux x86_64"}, "linux/arm64": {"Linux aarch64", "Linux arm64"},
	"linux/386": {"Linux i686", "Linux i586"}, "linux/arm": {"Linux armv7l", "Linux armv6l"},
	"linux/riscv64": {"Linux riscv64"}, "linux/ppc64le": {"Linux ppc64le"},
	"linux/s390x": {"Linux s390x"}, "linux/loong64": {"Linux loongarch64"},
}

// Script is what one start needs.
type Script struct {
	Word      string // begins the lines that are the launcher's
	Text      string
	Platforms []string                   // that all programs are there for
	Binaries  map[string]programs.Binary // by the name they have on the host
}

// Wanted is what is to be started.
type Wanted struct {
	Programs []string // the first is the one to become
	Optional []Optional
	Args     []string // an argument {NAME} stands for the path of program NAME; for nothing where that is lacking
}

// Optional is a program that may be lacking: for a platform that it is not carried for, and
// on hosts that have none of the files Where.
type Optional struct {
	Program string
	Where   []string // absolute paths; none: everywhere
}

func (w Wanted) names() []string {
	names := slices.Clone(w.Programs)
	for _, o := range w.Optional {
		names = append(names, o.Program)
	}
	return names
}

// conditions take optional programs back where nothing says that they are of use.
func (w Wanted) conditions() (string, error) {
	var b strings.Builder
	for i, o := range w.Optional {
		if len(o.Where) == 0 {
			continue
		}
		paths, err := quoteAll(o.Where)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "h%s || p%d=; ", paths, len(w.Programs)+i)
	}
	return b.String(), nil
}

// New makes the text that installs programs and becomes the first of them.
func New(word string, w Wanted, from programs.Programs) (*Script, error) {
	s := &Script{Word: word, Binaries: map[string]programs.Binary{}}
	names := w.names()
	arms, err := s.arms(w, from)
	if err != nil {
		return nil, err
	}
	command, err := commandLine(w.Args, names)
	if err != nil {
		return nil, err
	}
	conditions, err := w.conditions()
	if err != nil {
		return nil, err
	}
	var files []string
	for i := range names {
		files = append(files, fmt.Sprintf("$p%d", i))
	}
	s.Text = strings.NewReplacer("@WORD@", word, "@PLATFORMS@", arms, "@COMMAND@", command, "@CONDITIONS@", conditions,
		"@FILES@", strings.Join(files, " ")).Replace(scriptText)
	return s, nil
}

// arms are the branches of the choice by platform. Each sets the names of the
// files, p0 the program's own, and as $1... the arguments that come first.
func (s *Script) arms(w Wanted, from programs.Programs) (string, error) {
	var b strings.Builder
	for _, platform := range from.Platforms(w.Programs[0]) {
		arm, found, err := s.arm(w, platform, from)
		if err != nil {
			return "", err
		}
		if found {
			b.WriteString(arm)
			s.Platforms = append(s.Platforms, platform[0]+"/"+platform[1])
		}
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("this muster carries no platform that has all of %s", strings.Join(w.Programs, ", "))
	}
	return b.String(), nil
}

func (s *Script) arm(w Wanted, platform [2]string, from programs.Programs) (arm string, found bool, err error) {
	called := machines[platform[0]+"/"+platform[1]]
	if len(called) == 0 {
		return "", false, nil
	}
	sets, first := "", ""
	for i, name := range w.names() {
		if !slices.Contains(from.Platforms(name), platform) {
			if i < len(w.Programs) {
				return "", false, nil
			}
			sets += fmt.Sprintf("p%d=; ", i)
			continue
		}
		binary, err := from.Find(name, platform[0], platform[1])
		if err != nil {
			return "", false, err
		}
		if !Plain(name) || !Plain(binary.Hash) {
			return "", false, fmt.Errorf("program %q with hash %q: not fit for a file name", name, binary.Hash)
		}
		file := name + "-" + binary.Hash
		s.Binaries[file] = binary
		sets += fmt.Sprintf("p%d=%s; ", i, file)
		if i == 0 {
			if first, err = quoteAll(binary.Args); err != nil {
				return "", false, err
			}
		}
	}
	// "set --" without arguments clears what there was.
	return fmt.Sprintf(`"%s") %sset --%s;; `, strings.Join(called, `" | "`), sets, first), true, nil
}

// commandLine is what follows "exec".
func commandLine(args, names []string) (string, error) {
	line := `"$c/$p0" "$@"`
	for _, arg := range args {
		quoted, err := word(arg, names)
		if err != nil {
			return "", err
		}
		line += " " + quoted
	}
	return line, nil
}
