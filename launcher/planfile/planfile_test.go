package planfile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	saved := Saved{Version: Version, Source: config.Source{Filename: "job.hcl", Text: []byte("job \"j\" {}\xff")}, Ranks: []Rank{{Host: "a", Device: "GPU-1"}}}
	if err := Write(path, saved); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(*got, saved) {
		t.Errorf("read %+v (%v)", got, err)
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "plan.json"), saved); err == nil || !strings.Contains(err.Error(), "none/plan.json: no such file") {
		t.Errorf("written into a folder that is not there: %v", err)
	}
}

// As root, /dev/null itself would become a file.
func TestOnlyAFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	link, file, toPipe, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "to-pipe"), filepath.Join(dir, "pipe")
	err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link), syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, toPipe))
	if err != nil {
		t.Fatal(err)
	}
	saved := Saved{Version: Version, Ranks: []Rank{{Host: "a"}}}
	for _, path := range []string{pipe, toPipe, dir} {
		if err := Write(path, saved); err == nil || !strings.Contains(err.Error(), "is no file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Write(link, saved); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err != nil {
		t.Errorf("the link was replaced: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestWhatIsNoPlanIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	for text, want := range map[string]string{
		"job \"j\" {}": "is no saved plan", "{}": "is no saved plan", `{"version":99,"ranks":[{}]}`: "another version of muster",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
