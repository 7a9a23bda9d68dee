package planfile

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/plan"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	saved := plan.Saved{Version: plan.SavedVersion, Source: config.Source{Filename: "job.hcl", Text: []byte("job \"j\" {}\xff")}, Ranks: []plan.SavedRank{{Host: "a", Device: "GPU-1"}}}
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
	if err := Write(filepath.Join(t.TempDir(), "none", "plan.json"), saved); err == nil {
		t.Error("written into a folder that is not there")
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
