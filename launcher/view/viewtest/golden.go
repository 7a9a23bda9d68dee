// Package viewtest has what tests of views share: golden files, and a machine to show.
package viewtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files again")

// Compare compares with a file of launcher/view/testdata, for a package below launcher/view.
func Compare(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("../testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (update with -update); got:\n%s", path, got)
	}
}
