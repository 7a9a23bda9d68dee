package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster/launcher/config/decode"
	"github.com/muster-dev/muster/launcher/config/diagnostic"
	"github.com/muster-dev/muster/launcher/internal/text"
)

// Task is one of more pieces of work than workers run at a time: the command of the worker
// that does it, words appended.
type Task struct {
	Words  []string
	Source string // FILE:LINE
}

// maxTasks bounds the number of tasks, far above any real sweep.
const maxTasks = 100_000

// maxTasksText is the largest file of tasks that is read, in bytes.
const maxTasksText = 16 << 20

// Modes of a job.
const (
	modeDistributed = "distributed"
	modeIndependent = "independent"
)

var modes = []string{modeDistributed, modeIndependent}

// checkIndependent checks what a job says of ranks that would have to talk to each other.
func checkIndependent(b *decode.Block, r ranks, program string) {
	const title, out = "Ranks that do not talk", "mode = \"independent\" says that they do not. Leave one of them out."
	refuse := func(a *decode.Arg, is bool, what string) {
		if at, set := a.Written(); set && is {
			b.File.Error(at, title, "%s, and %s", what, out)
		}
	}
	refuse(r.block.Arg("backend"), r.backend != "none", fmt.Sprintf("backend = %q is for ranks that talk to each other", r.backend))
	refuse(r.block.Arg("groups"), true, "groups are ranks that talk to each other")
	refuse(b.Arg("program"), program == ProgramJAX, "program = \"jax\" is for ranks that find each other by jax.distributed.initialize()")
	if early := b.Block("early_exit"); early != nil {
		b.File.Warn(early.TypeAt, "Without effect", "early_exit is about ranks that wait for each other; with mode = \"independent\" each ends when it is done. Leave it out.")
	}
}

// decodeTasks decodes tasks or tasks_file, which was read before; nil where there is neither.
func decodeTasks(b *decode.Block, independent bool, read *TasksText) (found []Task) {
	listed, file := b.Arg("tasks"), b.Arg("tasks_file")
	given := cmp.Or(listed, file)
	switch {
	case given == nil:
		return nil
	case listed != nil && file != nil:
		b.File.ErrorAlso(file.NameAt, listed.NameAt, "Tasks twice", "tasks and tasks_file both say what the tasks are. Write one of them.")
		return nil
	case !independent:
		b.File.Error(given.NameAt, "Tasks of one job", "%s are pieces of work that do not talk to each other: write mode = \"independent\" too.", given.Name)
		return nil
	case file != nil:
		found = decodeTasksFile(file, read)
	default:
		found = decodeTaskList(listed)
	}
	switch {
	case given.Wrong():
	case len(found) == 0:
		given.Error("No tasks", "There is no task. Leave %s out to have one worker a rank.", given.Name)
	case len(found) > maxTasks:
		given.Error("Too many tasks", "There are %d tasks; at most %d are taken.", len(found), maxTasks)
	}
	return found
}

// decodeTaskList decodes tasks: each a list of words, or a line that is split as a line of a
// file is.
func decodeTaskList(a *decode.Arg) (found []Task) {
	elements, ok := a.Elements()
	if !ok {
		a.Error("Wrong type", "tasks is a list with the words of each task, such as [[\"--lr\", 0.1], [\"--lr\", 0.2]] or [\"--lr 0.1\", \"--lr 0.2\"].")
		return nil
	}
	for _, e := range elements {
		task := Task{Source: decode.SourceAt(e.At)}
		words, isList := e.Elements()
		word, isText := e.Word()
		switch {
		case isList:
			for _, w := range words {
				if _, ok := w.Value(); ok {
					task.Words = append(task.Words, decode.CommandWord(w, "a task"))
				}
			}
		case isText:
			task.Words = splitTask(e, word, "")
		case !e.Wrong():
			e.Error("Wrong type", "A task is a list of words such as [\"--lr\", 0.1], or a line such as \"--lr 0.1\", not %s.", e.Describe())
		}
		found = append(found, task)
	}
	return found
}

// decodeTasksFile are the lines of the file, without empty ones and those that begin with #.
func decodeTasksFile(a *decode.Arg, read *TasksText) (found []Task) {
	name := decode.Text(a)
	switch {
	case name == "":
		return nil
	case read == nil:
		a.Error("Tasks not read", "The file %s was not read.", diagnostic.Quoted(name))
		return nil
	case read.Error != "":
		a.Error("Cannot read the tasks", "%s", read.Error)
		return nil
	}
	number := 0
	for line := range strings.Lines(string(read.Text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		place := fmt.Sprintf("%s:%d", name, number)
		found = append(found, Task{Words: splitTask(a, line, place+": "), Source: place})
	}
	return found
}

// splitTask splits a line into words as a shell would, and expands nothing.
func splitTask(a *decode.Arg, line, place string) []string {
	words, err := text.ShellSplit(line)
	switch {
	case err != nil:
		a.Error("Invalid task", "%s%s has a quote or a backslash that is not closed. Words are split at blanks; quotes keep them together.", place, diagnostic.Quoted(line))
		return nil
	case strings.ContainsRune(line, 0):
		a.Error("NUL in a string", "%sA task holds a NUL character, which no program can be given.", place)
		return nil
	}
	for _, word := range words {
		if len(word) >= decode.MaxArgument {
			a.Error("Value too long", "%sA word of a task has %d bytes; Linux takes at most %d. Pass it in a file.", place, len(word), decode.MaxArgument-1)
		}
	}
	return words
}

// TasksText is what the file that tasks_file names held when the launcher read it.
type TasksText struct {
	Text  []byte `json:"text,omitempty"`
	Error string `json:"error,omitempty"` // why it could not be read, in words
}

// WithTasks puts the file that tasks_file names into the source. A relative name starts at
// the job file's folder. What is wrong with the job file itself Evaluate tells.
func (s Source) WithTasks() Source {
	_, job := s.declarations()
	name := decode.Text(job.Arg("tasks_file"))
	if name == "" {
		return s
	}
	s.Tasks = readTasks(name, filepath.Dir(s.Filename))
	return s
}

func readTasks(name, folder string) *TasksText {
	path := name
	if rest, isHome := strings.CutPrefix(path, "~/"); isHome {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, rest)
		}
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	text, err := readUpTo(path, maxTasksText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &TasksText{Error: fmt.Sprintf("There is no file %s on this machine.", path)}
	case err != nil:
		return &TasksText{Error: fmt.Sprintf("%s: %s.", path, reason(err))}
	case len(text) > maxTasksText:
		return &TasksText{Error: fmt.Sprintf("%s is larger than 16 MiB. Is it a list of tasks, one a line?", path)}
	case !utf8.Valid(text):
		return &TasksText{Error: path + " is not UTF-8 text. A file of tasks has one a line."}
	}
	return &TasksText{Text: text}
}
