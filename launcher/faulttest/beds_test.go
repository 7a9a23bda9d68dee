//go:build linux

package faulttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// idle are the beds that no seed uses at the moment. A bed whose hosts were cut or powered
// off, or on which something was found wrong, does not come back.
var idle shelf

type shelf struct {
	mu   sync.Mutex
	beds []*testbed.Bed
}

// hosts are those of every bed; the first is the head host of every run.
var hosts = []string{"node1", "node2", "node3"}

// take returns a bed that nobody else uses.
func (s *shelf) take(t testing.TB) *testbed.Bed {
	t.Helper()
	programs(t)
	s.mu.Lock()
	if n := len(s.beds); n > 0 {
		bed := s.beds[n-1]
		s.beds = s.beds[:n-1]
		s.mu.Unlock()
		return bed
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bed, err := testbed.Start(ctx, testbed.Options{Hosts: len(hosts), Keep: []string{workshop.dir}})
	if errors.Is(err, testbed.ErrNotRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bed
}

// give takes a bed back; one that is not fit for another seed is closed.
func (s *shelf) give(t testing.TB, bed *testbed.Bed, fit bool) {
	if !fit {
		if err := bed.Close(); err != nil {
			t.Errorf("close the testbed: %v", err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beds = append(s.beds, bed)
}

func (s *shelf) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, bed := range s.beds {
		errs = append(errs, bed.Close())
	}
	return errors.Join(errs...)
}
