package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/muster-dev/muster/launcher/internal/text"
	"github.com/zclconf/go-cty/cty"
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
func (d *decoder) checkIndependent(c content, r ranks) {
	if at, set := d.written(r.attrs["backend"]); set && r.backend != "none" {
		d.error(at, "Ranks that do not talk", "backend = %q is for ranks that talk to each other, and mode = \"independent\" says that they do not. Leave one of them out.", r.backend)
	}
	if at, set := d.written(r.attrs["groups"]); set {
		d.error(at, "Ranks that do not talk", "groups are ranks that talk to each other, and mode = \"independent\" says that they do not. Leave one of them out.")
	}
	if at, set := d.written(c.attrs["program"]); set && d.program == ProgramJAX {
		d.error(at, "Ranks that do not talk", "program = \"jax\" is for ranks that find each other by jax.distributed.initialize(), and mode = \"independent\" says that they do not. Leave one of them out.")
	}
	for _, block := range c.blocks["early_exit"] {
		d.warn(block.TypeRange, "Without effect", "early_exit is about ranks that wait for each other; with mode = \"independent\" each ends when it is done. Leave it out.")
	}
}

// tasks decodes tasks or tasks_file; nil where there is neither.
func (d *decoder) tasks(c content, independent bool) []Task {
	listed, file := c.attrs["tasks"], c.attrs["tasks_file"]
	given := listed
	if given == nil {
		given = file
	}
	switch {
	case given == nil:
		return nil
	case listed != nil && file != nil:
		d.errorAlso(file.NameRange, listed.NameRange, "Tasks twice", "tasks and tasks_file both say what the tasks are. Write one of them.")
		return nil
	case !independent:
		d.error(given.NameRange, "Tasks of one job", "%s are pieces of work that do not talk to each other: write mode = \"independent\" too.", given.Name)
		return nil
	}
	known := len(d.diags)
	var found []Task
	if file != nil {
		found = d.tasksInFile(file)
	} else {
		found = d.listedTasks(listed)
	}
	switch {
	case len(d.diags) > known:
	case len(found) == 0:
		d.error(given.Expr.Range(), "No tasks", "There is no task. Leave %s out to have one worker a rank.", given.Name)
	case len(found) > maxTasks:
		d.error(given.Expr.Range(), "Too many tasks", "There are %d tasks; at most %d are taken.", len(found), maxTasks)
	}
	return found
}

// listedTasks are those of a list: each a list of words, or a line that is split as a line
// of a file is.
func (d *decoder) listedTasks(attr *hclsyntax.Attribute) []Task {
	elements, ok := d.elements(attr.Expr)
	if !ok {
		d.error(attr.Expr.Range(), "Wrong type", "tasks is a list with the words of each task, such as [[\"--lr\", 0.1], [\"--lr\", 0.2]] or [\"--lr 0.1\", \"--lr 0.2\"].")
		return nil
	}
	var found []Task
	for _, e := range elements {
		task := Task{Source: sourceAt(e.expr.Range())}
		words, isList := d.elements(e.expr)
		switch {
		case isList && !sameExpr(attr.Expr, e.expr):
			for _, word := range words {
				task.Words = append(task.Words, d.word(word, "a task"))
			}
		case e.value.CanIterateElements() && !e.value.Type().IsObjectType() && !e.value.Type().IsMapType():
			for it := e.value.ElementIterator(); it.Next(); {
				_, word := it.Element()
				task.Words = append(task.Words, d.word(element{word, e.expr}, "a task"))
			}
		case !e.value.IsNull() && e.value.Type() == cty.String:
			task.Words = d.splitTask(e.value.AsString(), e.expr.Range(), "")
		default:
			d.error(e.expr.Range(), "Wrong type", "A task is a list of words such as [\"--lr\", 0.1], or a line such as \"--lr 0.1\", not %s.", describe(e.value))
		}
		found = append(found, task)
	}
	return found
}

// sameExpr is whether an element has no place of its own: its list is not written out.
func sameExpr(list, element hclsyntax.Expression) bool { return list.Range() == element.Range() }

// tasksInFile are the lines of the file, without empty ones and those that begin with #.
func (d *decoder) tasksInFile(attr *hclsyntax.Attribute) []Task {
	name := d.string(attr)
	at := attr.Expr.Range()
	switch {
	case name == "":
		return nil
	case d.src.Tasks == nil:
		d.error(at, "Tasks not read", "The file %s was not read.", quoted(name))
		return nil
	case d.src.Tasks.Error != "":
		d.error(at, "Cannot read the tasks", "%s", d.src.Tasks.Error)
		return nil
	}
	var found []Task
	number := 0
	for line := range strings.Lines(string(d.src.Tasks.Text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		place := fmt.Sprintf("%s:%d", name, number)
		found = append(found, Task{Words: d.splitTask(line, at, place+": "), Source: place})
	}
	return found
}

// splitTask splits a line into words as a shell would, and expands nothing.
func (d *decoder) splitTask(line string, at hcl.Range, place string) []string {
	words, err := text.SplitWords(line)
	switch {
	case err != nil:
		d.error(at, "Invalid task", "%s%s has a quote or a backslash that is not closed. Words are split at blanks; quotes keep them together.", place, quoted(line))
		return nil
	case strings.ContainsRune(line, 0):
		d.error(at, "NUL in a string", "%sA task holds a NUL character, which no program can be given.", place)
		return nil
	}
	for _, word := range words {
		if len(word) >= maxArgument {
			d.error(at, "Value too long", "%sA word of a task has %d bytes; Linux takes at most %d. Pass it in a file.", place, len(word), maxArgument-1)
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
	name := s.tasksFile()
	if name == "" {
		return s
	}
	s.Tasks = readTasks(name, filepath.Dir(s.Filename))
	return s
}

// tasksFile is the name of the tasks' file; "" where there is none.
func (s Source) tasksFile() string {
	d := s.declarations()
	for _, block := range d.jobs {
		if name := d.string(block.Body.Attributes["tasks_file"]); name != "" {
			return name
		}
	}
	return ""
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
