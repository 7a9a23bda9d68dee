//go:build linux

package testbed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// New starts a bed for a test and closes it when the test ends. It skips the test
// where it does not run as root, and fails it where anything else is missing.
func New(t testing.TB, opts Options) *Bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bed, err := Start(ctx, opts)
	if errors.Is(err, ErrNotRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			bed.logTo(t)
		}
		if err := bed.Close(); err != nil {
			t.Errorf("close the testbed: %v", err)
		}
	})
	return bed
}

// logTo shows the end of each host's log, which has the words of its sshd.
func (b *Bed) logTo(t testing.TB) {
	for _, h := range b.Hosts {
		if text := h.logTail(); len(text) > 0 {
			t.Logf("log of %s ends with:\n%s", h.Name, text)
		}
	}
}

func (h *Host) logTail() []byte {
	text, _ := os.ReadFile(h.Log())
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], nil)
}
