// Package examples tests that what people copy from this repository works: job files
// here and in the documentation.
package examples

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
)

const top = ".."

// snippet is a job file, or a block of one in a text.
type snippet struct {
	place string // FILE or FILE:LINE
	text  []byte
}

func TestJobFilesHereAreSilent(t *testing.T) {
	paths, err := filepath.Glob("*.hcl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no job files here: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		silent(t, snippet{path, text})
	}
}

func TestJobFilesInDocumentationAreSilent(t *testing.T) {
	var found []snippet
	for _, path := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := blocksOf(path, text, "hcl")
		if err != nil {
			t.Error(err)
		}
		found = append(found, blocks...)
	}
	if len(found) == 0 {
		t.Error("no job file in any document")
	}
	for _, s := range found {
		silent(t, s)
	}
}

// silent checks that a job file is whole and gives neither errors nor warnings.
func silent(t *testing.T, s snippet) {
	t.Run(strings.ReplaceAll(s.place, "/", "-"), func(t *testing.T) {
		_, diags := config.Source{Filename: s.place, Text: s.text}.Evaluate()
		for _, d := range diags {
			t.Errorf("%s", d)
		}
	})
}

// documents are all Markdown files of the tree, without folders that are built, hidden
// or others'.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(name) == ".md":
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// blocksOf finds the fenced blocks of a language in a Markdown text.
func blocksOf(path string, text []byte, language string) ([]snippet, error) {
	var found []snippet
	inside, wanted, number := false, false, 0
	for line := range bytes.Lines(text) {
		number++
		fence, isFence := bytes.CutPrefix(bytes.TrimSpace(line), []byte("```"))
		switch {
		case isFence && !inside:
			inside, wanted = true, string(bytes.TrimSpace(fence)) == language
			if wanted {
				found = append(found, snippet{place: fmt.Sprintf("%s:%d", path, number+1)})
			}
		case isFence:
			inside = false
		case inside && wanted:
			last := &found[len(found)-1]
			last.text = append(last.text, line...)
		}
	}
	if inside {
		return found, fmt.Errorf("%s: a block is not closed", path)
	}
	return found, nil
}

func TestBlocksAreFoundWithTheirLines(t *testing.T) {
	text := "# x\n```sh\nmake\n```\n\n```hcl\njob \"a\" {\n}\n```\ntext\n  ```hcl\nb\n  ```\n"
	blocks, err := blocksOf("x.md", []byte(text), "hcl")
	if err != nil || len(blocks) != 2 || blocks[0].place != "x.md:7" || string(blocks[0].text) != "job \"a\" {\n}\n" || blocks[1].place != "x.md:12" {
		t.Errorf("blocks %q, %v", blocks, err)
	}
	if _, err := blocksOf("x.md", []byte("```hcl\njob"), "hcl"); err == nil {
		t.Error("an open block gives no error")
	}
}
