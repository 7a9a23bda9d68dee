package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTasksFile: a file of tasks has one a line, beside the job file, and is read when the
// job is launched: what evaluates the job later needs no file.
func TestTasksFile(t *testing.T) {
	folder := t.TempDir()
	text := "# learning rates\n\n--lr 0.1\n  --lr 0.2 --name 'a b'  \r\n\"\"\n"
	if err := os.WriteFile(filepath.Join(folder, "rates.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	src := taskSource(folder, "${var.what}.txt").WithTasks()
	if err := os.Remove(filepath.Join(folder, "rates.txt")); err != nil {
		t.Fatal(err)
	}
	job, diags := src.Evaluate()
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	var words, sources []string
	for _, task := range job.Tasks {
		words, sources = append(words, strings.Join(task.Words, "|")), append(sources, task.Source)
	}
	if want := []string{"--lr|0.1", "--lr|0.2|--name|a b", ""}; !slices.Equal(words, want) {
		t.Errorf("tasks are %q, want %q", words, want)
	}
	if want := []string{"rates.txt:3", "rates.txt:4", "rates.txt:5"}; !slices.Equal(sources, want) {
		t.Errorf("their places are %q, want %q", sources, want)
	}
}

func taskSource(folder, file string) Source {
	text := "variable \"what\" { default = \"rates\" }\n" + `job "sweep" {
  command    = ["python", "small.py"]
  mode       = "independent"
  tasks_file = "` + file + `"
  hosts "local" {}
}
`
	return Source{Filename: filepath.Join(folder, "job.hcl"), Text: []byte(text)}
}

// TestTasksFileTroubles: a file of tasks that is no good is an error of the job file that
// names the file, and the line where one is to blame.
func TestTasksFileTroubles(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"open.txt": "a\n--name 'open\n", "binary.txt": "\xff\xfe\n", "empty.txt": "# nothing\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"absent.txt": "no file", "open.txt": "open.txt:2", "binary.txt": "not UTF-8", "empty.txt": "no task", ".": "is a directory",
	} {
		_, diags := taskSource(folder, file).WithTasks().Evaluate()
		if len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
			t.Errorf("%s: %v, want one error that says %q", file, diags, want)
		}
	}
}
