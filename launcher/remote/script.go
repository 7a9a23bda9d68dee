package remote

import (
	"fmt"
	"slices"
	"strings"
)

// The text that the login shell of a host is told to run. It becomes the program
// that is started, by way of /bin/sh, in one exec: where the programs are there,
// nothing else is asked of the host.
//
// The login shell may be bash, zsh, fish or csh. They agree on what stands
// between single quotes as long as it holds no single quote, no exclamation mark,
// no line end, and no backslash before a backslash.
//
// What the text prints for the launcher are lines that begin with a random word,
// so that nothing which shell files print is mistaken for one:
//
//	WORD missing FILE KIND   send FILE; KIND is gzip or raw
//	WORD failed WHY TEXT     the end
//	WORD exec FOLDER         the next byte is the program's own
//
// To "missing" the launcher answers with a line "BYTES SIZE" and so many bytes,
// and then keeps silent until the next line: head may read ahead.

// scriptText is a template; @WORD@ and the like are filled in.
const scriptText = `n=@WORD@; ` +
	// Why the program could not be started, on one line, and the end.
	`f() { w=$1; shift; set -f; echo "$n" failed "$w" $*; exit 1; }; ` +
	`case ${XDG_CACHE_HOME-} in /*) c=$XDG_CACHE_HOME;; *) c=${HOME-}/.cache;; esac; c=$c/muster/bin; ` +
	// The kernel's word for the machine costs no process where /proc has it.
	`if [ -r /proc/sys/kernel/arch ]; then read -r m </proc/sys/kernel/arch; m="Linux $m"; else m=$(uname -sm); fi; ` +
	`case $m in @PLATFORMS@ *) f platform "$m";; esac; ` +
	// Fetch a program. The word makes the temporary name unique: homes may be
	// shared by hosts that install at the same time.
	`z() { rm -f "$t"; }; ` +
	`g() { t=$c/.$n; umask 077; trap z 0; trap "exit 1" 1 2 13 15; ` +
	`e=$(LC_ALL=C; export LC_ALL; mkdir -p "$c" 2>&1) || f folder "$e"; ` +
	`find "$c" -name ".*" -type f -mtime +1 -exec rm -f {} + 2>/dev/null; ` +
	`k=raw; command -v gzip >/dev/null 2>&1 && k=gzip; ` +
	`echo "$n" missing "$1" $k; read -r b s || exit 1; ` +
	`e=$(LC_ALL=C; export LC_ALL; { if [ $k = gzip ]; then head -c "$b" | gzip -dc; else head -c "$b"; fi >"$t"; } 2>&1); ` +
	`[ "$(wc -c 2>/dev/null <"$t")" -eq "$s" ] 2>/dev/null || { z; f write "$(df -Pk "$c" 2>/dev/null | tail -n 1)" : "$e"; }; ` +
	`e=$(LC_ALL=C; export LC_ALL; { chmod 700 "$t" && mv -f "$t" "$c/$1"; } 2>&1) || f folder "$e"; ` +
	`trap - 0 1 2 13 15; }; ` +
	// Empty files are what a crash leaves of a fresh one.
	`for p in @FILES@; do [ -x "$c/$p" ] && [ -s "$c/$p" ] || { o=$(umask); g "$p"; umask "$o"; }; ` +
	`[ -x "$c/$p" ] || f noexec "$c"; done; ` +
	`echo "$n" exec "$c"; exec @COMMAND@`

// machines are what hosts call the platforms that Go knows.
var machines = map[string][]string{
	"linux/amd64": {"Linux x86_64"}, "linux/arm64": {"Linux aarch64", "Linux arm64"},
	"linux/386": {"Linux i686", "Linux i586"}, "linux/arm": {"Linux armv7l", "Linux armv6l"},
	"linux/riscv64": {"Linux riscv64"}, "linux/ppc64le": {"Linux ppc64le"},
	"linux/s390x": {"Linux s390x"}, "linux/loong64": {"Linux loongarch64"},
	"darwin/amd64": {"Darwin x86_64"}, "darwin/arm64": {"Darwin arm64"},
}

// script is what one launch needs: the text, and the binaries by the name they
// have on the host.
type script struct {
	word     string
	text     string
	binaries map[string]Binary
	platform []string // that all programs are carried for
}

// newScript makes the text for a launch.
func newScript(word string, launch Launch, programs Programs) (*script, error) {
	s := &script{word: word, binaries: map[string]Binary{}}
	names := programNames(launch)
	arms, err := s.arms(names, programs)
	if err != nil {
		return nil, err
	}
	command, err := commandLine(launch, names)
	if err != nil {
		return nil, err
	}
	var files []string
	for i := range names {
		files = append(files, fmt.Sprintf("$p%d", i))
	}
	s.text = strings.NewReplacer("@WORD@", word, "@PLATFORMS@", arms, "@COMMAND@", command,
		"@FILES@", strings.Join(files, " ")).Replace(scriptText)
	return s, nil
}

// programNames are the programs of a launch; the one to start is the first.
func programNames(launch Launch) []string {
	names := []string{launch.Program}
	for _, also := range launch.Also {
		if !slices.Contains(names, also) {
			names = append(names, also)
		}
	}
	return names
}

// arms are the branches of the choice by platform. Each sets the names of the
// files, p0 the program's own, and as $1... the arguments that come first.
func (s *script) arms(names []string, programs Programs) (string, error) {
	var b strings.Builder
	for _, platform := range programs.Platforms(names[0]) {
		arm, found, err := s.arm(names, platform, programs)
		if err != nil {
			return "", err
		}
		if found {
			b.WriteString(arm)
			s.platform = append(s.platform, platform[0]+"/"+platform[1])
		}
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("this muster carries no platform that has all of %s", strings.Join(names, ", "))
	}
	return b.String(), nil
}

func (s *script) arm(names []string, platform [2]string, programs Programs) (arm string, found bool, err error) {
	called := machines[platform[0]+"/"+platform[1]]
	if len(called) == 0 {
		return "", false, nil
	}
	sets, first := "", ""
	for i, name := range names {
		if !slices.Contains(programs.Platforms(name), platform) {
			return "", false, nil
		}
		binary, err := programs.Find(name, platform[0], platform[1])
		if err != nil {
			return "", false, err
		}
		if !plain(name) || !plain(binary.Hash) {
			return "", false, fmt.Errorf("program %q with hash %q: not fit for a file name", name, binary.Hash)
		}
		file := name + "-" + binary.Hash
		s.binaries[file] = binary
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
func commandLine(launch Launch, names []string) (string, error) {
	line := `"$c/$p0" "$@"`
	for _, arg := range launch.Args {
		quoted, err := word(arg, names)
		if err != nil {
			return "", err
		}
		line += " " + quoted
	}
	return line, nil
}

// word is an argument as the text has it.
func word(arg string, names []string) (string, error) {
	name, isPlace := placeholder(arg)
	if !isPlace {
		return quote(arg)
	}
	i := slices.Index(names, name)
	if i < 0 {
		return "", fmt.Errorf("argument %s names a program that the launch lacks (it has %s)", arg, strings.Join(names, ", "))
	}
	return fmt.Sprintf(`"$c/$p%d"`, i), nil
}

func quoteAll(args []string) (string, error) {
	out := ""
	for _, arg := range args {
		quoted, err := quote(arg)
		if err != nil {
			return "", err
		}
		out += " " + quoted
	}
	return out, nil
}

// quote makes one word of sh that survives single quotes of every login shell:
// what would not is left to printf.
func quote(arg string) (string, error) {
	var b strings.Builder
	b.WriteByte('"')
	special := false
	for i := range len(arg) {
		c := arg[i]
		if c < ' ' || c == 0x7f {
			return "", fmt.Errorf("argument %q has a control character", arg)
		}
		awkward := c >= 0x80 || strings.IndexByte("'!\\$`\"", c) >= 0
		switch {
		case awkward && !special:
			b.WriteString(`$(printf "`)
		case !awkward && special:
			b.WriteString(`")`)
		}
		if special = awkward; awkward {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	if special {
		b.WriteString(`")`)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// plain reports whether a name can stand in the text as it is.
func plain(name string) bool {
	ok := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return name != "" && name[0] != '-' && name[0] != '.' && strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) < 0
}
