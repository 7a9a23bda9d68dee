package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadErrors(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Chdir(folder)
	for name, test := range map[string]struct{ file, want string }{
		"missing names the absolute path": {"no.hcl", filepath.Join(folder, "no.hcl")},
		"folder":                          {folder, "It is a folder"},
		"no name":                         {"", "is empty"},
		"empty":                           {write("empty.hcl", ""), "is empty"},
		"blank":                           {write("blank.hcl", "\ufeff \r\n\t\n"), "is empty"},
		"binary":                          {write("bin.hcl", "ab\ncd\x00"), "not UTF-8 text"},
		"latin-1":                         {write("latin.hcl", "a\n\nf\xf6\xf6"), "not UTF-8 text"},
		"UTF-16":                          {write("utf16.hcl", "\xff\xfej\x00o\x00b\x00"), "not UTF-8 text"},
		"too large":                       {write("large.hcl", strings.Repeat("#\n", 1<<19)+"#"), "larger than 1 MiB"},
		"endless":                         {"/dev/zero", "larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			src, diags := Read(test.file, nil, nil)
			if !diags.HasErrors() {
				t.Fatal("no error")
			}
			if text := printed(src, diags); !strings.Contains(text, test.want) {
				t.Errorf("got:\n%swant %q", text, test.want)
			}
		})
	}
}

func TestLargestFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", 1<<19)), 0o600); err != nil {
		t.Fatal(err)
	}
	if src, diags := Read(path, nil, nil); len(diags) > 0 {
		t.Error(printed(src, diags))
	}
}

// TestEvaluateChecksText: a source may come from the network.
func TestEvaluateChecksText(t *testing.T) {
	for _, text := range []string{"", "\x00", "\xff", strings.Repeat("#\n", 1<<20)} {
		if _, diags := (Source{Filename: "x.hcl", Text: []byte(text)}).Evaluate(); !diags.HasErrors() {
			t.Errorf("%.10q was taken", text)
		}
	}
}
