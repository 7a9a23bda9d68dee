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

// New makes the text that installs programs and becomes the first of them, with
// args. An argument {NAME} stands for the path of program NAME.
func New(word string, names, args []string, from programs.Programs) (*Script, error) {
	s := &Script{Word: word, Binaries: map[string]programs.Binary{}}
	arms, err := s.arms(names, from)
	if err != nil {
		return nil, err
	}
	command, err := commandLine(args, names)
	if err != nil {
		return nil, err
	}
	var files []string
	for i := range names {
		files = append(files, fmt.Sprintf("$p%d", i))
	}
	s.Text = strings.NewReplacer("@WORD@", word, "@PLATFORMS@", arms, "@COMMAND@", command,
		"@FILES@", strings.Join(files, " ")).Replace(scriptText)
	return s, nil
}

// arms are the branches of the choice by platform. Each sets the names of the
// files, p0 the program's own, and as $1... the arguments that come first.
func (s *Script) arms(names []string, from programs.Programs) (string, error) {
	var b strings.Builder
	for _, platform := range from.Platforms(names[0]) {
		arm, found, err := s.arm(names, platform, from)
		if err != nil {
			return "", err
		}
		if found {
			b.WriteString(arm)
			s.Platforms = append(s.Platforms, platform[0]+"/"+platform[1])
		}
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("this muster carries no platform that has all of %s", strings.Join(names, ", "))
	}
	return b.String(), nil
}

func (s *Script) arm(names []string, platform [2]string, from programs.Programs) (arm string, found bool, err error) {
	called := machines[platform[0]+"/"+platform[1]]
	if len(called) == 0 {
		return "", false, nil
	}
	sets, first := "", ""
	for i, name := range names {
		if !slices.Contains(from.Platforms(name), platform) {
			return "", false, nil
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
