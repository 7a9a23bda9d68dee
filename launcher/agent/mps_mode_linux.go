package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/proc"
	"github.com/muster-dev/muster/launcher/rundir"
)

// changedMode is a note that a run has changed the compute mode of a device: whoever ends what
// is left of the run sets it back. A file holds it, since the run may die as a whole.
type changedMode struct {
	Run    string `json:"run"`
	Device string `json:"device"` // UUID
	Was    string `json:"was"`    // as nvidia-smi has it: "Default"
}

// modeWait bounds a call of nvidia-smi: a driver that nothing keeps loaded takes seconds.
const modeWait = 20 * time.Second

// setExclusive sets a device to exclusive process, and notes what it was before.
func setExclusive(ctx context.Context, reaper *proc.Reaper, run, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, modeWait)
	defer cancel()
	was, err := smi(ctx, reaper, "--query-gpu=compute_mode", "--format=csv,noheader", "-i", uuid)
	if err != nil {
		return fmt.Errorf("compute mode of %s: %w", uuid, err)
	}
	if was == "Exclusive_Process" {
		return nil
	}
	note := changedMode{Run: run, Device: uuid, Was: was}
	path, err := note.write()
	if err != nil {
		return fmt.Errorf("note the compute mode of %s: %w", uuid, err)
	}
	if _, err := smi(ctx, reaper, "-i", uuid, "-c", "EXCLUSIVE_PROCESS"); err != nil {
		if refused := (*smiRefusal)(nil); errors.As(err, &refused) {
			os.Remove(path) // nothing has changed; else it may have
		}
		return fmt.Errorf("set %s to exclusive process: %w", uuid, err)
	}
	return nil
}

// smi runs nvidia-smi, whose refusals have a status of their own.
func smi(ctx context.Context, reaper *proc.Reaper, args ...string) (string, error) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return "", err
	}
	answer, err := consult(ctx, reaper, append([]string{program}, args...), os.Environ(), "")
	text := strings.TrimSpace(answer.Text)
	switch {
	case err != nil:
		return "", err
	case answer.Code != 0:
		return "", &smiRefusal{text, answer.Code}
	}
	return text, nil
}

// smiRefusal is nvidia-smi's no.
type smiRefusal struct {
	words string
	code  int
}

func (r *smiRefusal) Error() string {
	return fmt.Sprintf("nvidia-smi: %s (exit status %d)", r.words, r.code)
}

func modesFolder() (string, error) { return rundir.Modes(facts.Identity("")) }

// write makes the note before the mode is changed. An older one is kept: what it says came
// first.
func (c changedMode) write() (path string, err error) {
	if path, err = c.path(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	return path, errors.Join(err, f.Close())
}

// notedModes are what runs have changed on this host and nobody has set back.
func notedModes() (all []changedMode) {
	dir, err := modesFolder()
	if err != nil {
		return nil
	}
	notes, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, path := range notes {
		var c changedMode
		text, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(text, &c) == nil && c.Device != "" {
			all = append(all, c)
		}
	}
	return all
}

func isNoted(device string) bool {
	return slices.ContainsFunc(notedModes(), func(c changedMode) bool { return c.Device == device })
}

// path is where the note is.
func (c changedMode) path() (string, error) {
	dir, err := modesFolder()
	return filepath.Join(dir, strings.ReplaceAll(c.Device, "/", "_")+".json"), err
}

// restoreModes sets back what runs have changed that mine tells, and says what could not be.
func restoreModes(reaper *proc.Reaper, mine func(run string) bool) (left []string) {
	for _, c := range notedModes() {
		path, err := c.path()
		if err != nil || !mine(c.Run) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), modeWait)
		_, err = smi(ctx, reaper, "-i", c.Device, "-c", strings.ToUpper(c.Was))
		cancel()
		if err != nil {
			left = append(left, fmt.Sprintf("the compute mode of %s is still exclusive process, and was %s: %v", c.Device, c.Was, err))
			continue
		}
		os.Remove(path)
	}
	return left
}
