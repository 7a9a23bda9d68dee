// Package planfile keeps plans in files: muster plan --save writes them, muster run --plan
// reads them.
package planfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/launcher/plan"
)

// Write writes a plan, whole or not at all. Only its user may read it: a job file may hold
// secrets.
func Write(path string, saved plan.Saved) error {
	text, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".plan")
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("save the plan: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// Read reads what Write has written.
func Read(path string) (*plan.Saved, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	var saved plan.Saved
	if err := json.Unmarshal(text, &saved); err != nil || saved.Version == 0 || len(saved.Ranks) == 0 {
		return nil, fmt.Errorf("%s is no saved plan; muster plan JOB.hcl --save %s makes one", path, path)
	}
	if saved.Version != plan.SavedVersion {
		return nil, fmt.Errorf("%s was saved by another version of muster (form %d, this one reads %d): save it anew", path, saved.Version, plan.SavedVersion)
	}
	return &saved, nil
}
