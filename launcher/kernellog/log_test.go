//go:build linux

package kernellog

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// written is a log with these lines, as the kernel has them.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecordsHaveTheirTimeAndText(t *testing.T) {
	path := written(t, "6,339,5140900,-;NET: Registered; PF_INET6\n SUBSYSTEM=net\n DEVICE=+net\n4,340,5690716123,c;a \\x0a line\nwithout a prefix\n")
	log, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var got []Record
	log.Each(func(r Record) { got = append(got, r) })
	want := []Record{{5.1409, "NET: Registered; PF_INET6"}, {5690.716123, `a \x0a line`}, {0, "without a prefix"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestALogOpenedAtItsEndHasWhatComesLater(t *testing.T) {
	path := written(t, "4,1,1,-;before\n")
	log, err := Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("4,2,2,-;after\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var got []string
	log.Each(func(r Record) { got = append(got, r.Text) })
	if !slices.Equal(got, []string{"after"}) {
		t.Errorf("%q", got)
	}
}

func TestALogThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), false); !os.IsNotExist(err) {
		t.Error(err)
	}
}
