// Package software finds which Python a command runs with, and the versions of it, of torch
// and of NCCL, in files: nothing is started or imported. It knows nothing of what the
// versions are for.
package software

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/hostfs"
)

// Find reads from files which Python a command is going to run with, and the
// versions of torch and NCCL that this finds. Nothing is started or imported: importing
// torch takes seconds, and on a cold file server minutes. The program is the command's
// first word or an interpreter, looked for as execvp(3) does in the environment that
// workers get.
func Find(root hostfs.Root, program string, environ map[string]string, workdir string) facts.Software {
	f := finder{root: root, environ: environ, workdir: workdir}
	python, why := f.interpreter(program)
	if why != "" {
		return facts.Software{Why: why, Missing: f.missing(program)}
	}
	p := f.python(python)
	s := facts.Software{Python: python, Version: p.version}
	s.Torch, s.NCCL, s.Why = f.torch(p)
	return s
}

// missing says why a program cannot be started: it is not there, or a script is and the
// interpreter that its first line names is not.
func (f finder) missing(program string) string {
	file, why := f.lookup(program)
	if why != "" {
		return why
	}
	words := shebang(f.head(file))
	if len(words) == 0 {
		return ""
	}
	if _, why := f.lookup(words[0]); why != "" {
		return fmt.Sprintf("%s names an interpreter: %s", file, why)
	}
	if next := envProgram(words[1:]); path.Base(words[0]) == "env" && next != "" {
		if _, why := f.lookup(next); why != "" {
			return fmt.Sprintf("%s names an interpreter: %s", file, why)
		}
	}
	return ""
}

// shebang are the words of a script's first line after #!; nil where it is no script.
func shebang(head []byte) []string {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	line, is := bytes.CutPrefix(first, []byte("#!"))
	if !is {
		return nil
	}
	return strings.Fields(string(line))
}

type finder struct {
	root    hostfs.Root
	environ map[string]string
	workdir string
}

// hiding are programs that choose the interpreter themselves.
var hiding = map[string]string{
	"uv": "uv run hides the interpreter", "uvx": "uvx hides the interpreter", "poetry": "poetry run hides the interpreter",
	"pipenv": "pipenv run hides the interpreter", "pixi": "pixi run hides the interpreter", "hatch": "hatch run hides the interpreter",
	"conda": "conda run hides the interpreter", "mamba": "mamba run hides the interpreter", "micromamba": "micromamba run hides the interpreter",
	"docker": "docker: inside a container image", "podman": "podman: inside a container image", "enroot": "enroot: inside a container image",
	"apptainer": "apptainer: inside a container image", "singularity": "singularity: inside a container image",
	"srun": "srun starts the command elsewhere", "mpirun": "mpirun hides the interpreter", "mpiexec": "mpiexec hides the interpreter",
	"sh": "a shell hides the interpreter", "bash": "a shell hides the interpreter", "dash": "a shell hides the interpreter", "zsh": "a shell hides the interpreter",
	"env": "env hides the interpreter", "numactl": "numactl hides the interpreter", "taskset": "taskset hides the interpreter", "nice": "nice hides the interpreter",
	"nsys": "nsys hides the interpreter", "ncu": "ncu hides the interpreter", "sudo": "sudo hides the interpreter",
}

// IsPython tells by its name whether a program is a Python interpreter.
func IsPython(program string) bool { return pythonName.MatchString(path.Base(program)) }

// pythonName tells an interpreter by its name: python, python3.11, python3.13t, pypy3.
var pythonName = regexp.MustCompile(`^(python|pypy)[0-9.]*t?$`)

// deepest is how many scripts may stand between a command and its interpreter.
const deepest = 4

// interpreter follows a program, and the scripts that it may be, to a Python.
func (f finder) interpreter(program string) (python, why string) {
	for range deepest {
		if why := hiding[path.Base(program)]; why != "" {
			return "", why
		}
		file, why := f.lookup(program)
		if why != "" {
			return "", why
		}
		file = cmp.Or(f.behindShim(file), file)
		if pythonName.MatchString(path.Base(file)) && !f.isScript(file) {
			return file, ""
		}
		if program, why = f.scriptOf(file); why != "" {
			return "", why
		}
	}
	return "", program + ": scripts that name scripts that name scripts"
}

// lookup finds a program as execvp(3) does: by PATH, or relative to the working directory.
func (f finder) lookup(program string) (file, why string) {
	if rest, is := strings.CutPrefix(program, "~/"); is {
		program = path.Join(f.environ["HOME"], rest)
	}
	search, set := f.environ["PATH"]
	if !set {
		search = "/usr/local/bin:/usr/bin:/bin"
	}
	switch file := f.root.LookPath(program, search, f.workdir); {
	case file != "":
		return file, ""
	case strings.Contains(program, "/"):
		return "", f.absolute(program) + " is not there, or cannot be run"
	}
	return "", fmt.Sprintf("there is no %s in PATH (%s)", program, search)
}

func (f finder) absolute(file string) string { return hostfs.Absolute(file, f.workdir) }

// head reads the beginning of a file.
func (f finder) head(file string) []byte {
	h, err := os.Open(string(f.root) + f.root.Resolve(file))
	if err != nil {
		return nil
	}
	defer h.Close()
	text, _ := io.ReadAll(io.LimitReader(h, 4096))
	return text
}

func (f finder) isScript(file string) bool { return bytes.HasPrefix(f.head(file), []byte("#!")) }

// execTrick is the second line of scripts whose interpreter's path is too long for the
// first, or has a space: a shell execs it, and Python takes the line for a string. pip and
// conda write the path as it is or in quotes, uv also relative to the script.
var execTrick = regexp.MustCompile(`^'''exec' (?:"\$\(dirname -- "\$\(realpath -- "\$0"\)"\)"/(\S+)|"([^"]+)"|'([^']+)'|(\S+)) `)

// scriptOf reads which interpreter a script names (execve(2)).
func (f finder) scriptOf(file string) (program, why string) {
	head := f.head(file)
	_, rest, _ := strings.Cut(string(head), "\n")
	words := shebang(head)
	if len(words) == 0 {
		return "", file + " is neither a Python nor a script"
	}
	switch name := path.Base(words[0]); {
	case name == "env":
		if program = envProgram(words[1:]); program == "" {
			return "", file + " does not name its interpreter"
		}
	case hiding[name] != "":
		second, _, _ := strings.Cut(rest, "\n")
		m := execTrick.FindStringSubmatch(second)
		if m == nil {
			return "", file + " is a shell script, which hides the interpreter"
		}
		if program = cmp.Or(m[2], m[3], m[4]); m[1] != "" {
			program = path.Join(path.Dir(f.root.Resolve(file)), strings.Trim(m[1], `'"`))
		}
	default:
		program = words[0]
	}
	if why := hiding[path.Base(program)]; why != "" {
		return "", file + " is a script: " + why
	}
	return program, ""
}

// envProgram is what env(1) is to run: the first word that is no option and sets nothing.
func envProgram(words []string) string {
	for _, word := range words {
		if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}
