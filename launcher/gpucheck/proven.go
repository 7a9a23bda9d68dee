package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Words of muster run about who is on which GPU.
const (
	provenWords = "every rank was seen on its GPU"
	blindWords  = "cannot be seen"
)

// provenWait is how long muster may take to see its ranks.
const provenWait = 10 * time.Second

// checkProven has muster see for itself that each rank is on its GPU.
func checkProven(ctx context.Context, s *session) error {
	if err := s.whole(); err != nil {
		return err
	}
	l, err := s.run(ctx, s.write("proven"))
	if err != nil {
		return err
	}
	_, err = l.await(ctx, len(s.usable))
	there := time.Now()
	said := ""
	for err == nil && said == "" && time.Since(there) < provenWait {
		for _, words := range []string{provenWords, blindWords} {
			if strings.Contains(l.stderr.String(), words) {
				said = words
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	took := time.Since(there)
	if ended := l.end(ctx); err == nil {
		err = ended
	}
	switch {
	case err != nil:
		return err
	case said == blindWords && s.how != byPID:
		return impossible("muster says that it cannot tell processes apart here, and nvidia-smi shows them " + s.how)
	case said != provenWords:
		return fmt.Errorf("muster has not seen all ranks on their GPUs within %.0f s: %s", provenWait.Seconds(), l.said().last())
	}
	s.note("seen %.1f s after the last rank had its GPU", took.Seconds())
	return s.reportProves(ctx)
}

// reportProves looks at the report of the run that ended last.
func (s *session) reportProves(ctx context.Context) error {
	o, err := s.command(ctx, s.muster, "report", "-", "--json")
	if err != nil {
		return err
	}
	var report struct{ Placement string }
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil {
		return fmt.Errorf("muster report: %w: %s", err, o.last())
	}
	if report.Placement != "proven" {
		return fmt.Errorf("the report says that the placement is %q", report.Placement)
	}
	return nil
}
