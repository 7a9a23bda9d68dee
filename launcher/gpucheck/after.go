package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// afterWait is how long the driver may take to give memory back.
const afterWait = 10 * time.Second

// checkAfter sees that GPUs are as they were: no process of a check, no memory, and the
// same settings.
func checkAfter(ctx context.Context, s *session) error {
	if len(s.rows) == 0 {
		return impossible("there is no GPU")
	}
	ctx, cancel := context.WithTimeout(ctx, afterWait)
	defer cancel()
	for {
		apps, rows, err := s.who(ctx)
		if err == nil {
			err = s.asBefore(apps, rows)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// asBefore compares what nvidia-smi shows now with what it showed before all checks.
func (s *session) asBefore(apps []app, rows []row) error {
	if len(rows) != len(s.rows) {
		return fmt.Errorf("%d GPUs before, %d after", len(s.rows), len(rows))
	}
	var changed []error
	for _, a := range apps {
		if s.pids[a.PID] {
			changed = append(changed, fmt.Errorf("pid %d (%s) is still on %s", a.PID, a.Name, a.UUID))
		}
	}
	for pid := range s.pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			changed = append(changed, fmt.Errorf("the worker with pid %d is still there", pid))
		}
	}
	for i, before := range s.rows {
		now := rows[i]
		if now.Used-before.Used >= held && len(s.apps) == 0 {
			changed = append(changed, fmt.Errorf("GPU %d: %d MiB in use before, %d after", before.Index, before.Used, now.Used))
		}
		if now.Mode != before.Mode || now.MIG != before.MIG || now.UUID != before.UUID {
			changed = append(changed, fmt.Errorf("GPU %d: mode %s, MIG %s before; %s, %s after", before.Index, before.Mode, before.MIG, now.Mode, now.MIG))
		}
	}
	return errors.Join(changed...)
}
