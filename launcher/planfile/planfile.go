// Package planfile keeps plans in files: muster plan --save writes them, muster run --plan reads them.
package planfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write writes a plan, whole or not at all. Only its user may read it: a job file may hold secrets.
func Write(path string, saved Saved) error {
	text, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	// What is renamed over a device or a link takes its place.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("save the plan: %s is there and is no file", path)
	}
	if err := renameio.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("save the plan in %s: %w", path, cause(err))
	}
	return nil
}

// cause is an error without the name of the file that only Write knows.
func cause(err error) error {
	var of *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &of):
		return of.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// Read reads what Write has written.
func Read(path string) (*Saved, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	var saved Saved
	if err := json.Unmarshal(text, &saved); err != nil || saved.Version == 0 || len(saved.Ranks) == 0 {
		return nil, fmt.Errorf("%s is no saved plan; muster plan JOB.hcl --save FILE makes one", path)
	}
	if saved.Version != Version {
		return nil, fmt.Errorf("%s was saved by another version of muster (form %d, this one reads %d): save it anew", path, saved.Version, Version)
	}
	return &saved, nil
}
