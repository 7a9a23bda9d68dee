//go:build linux

package endtoend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
)

// room has beds of one kind. A test borrows one, uses it alone, and gives it back when it
// ends; there are as many as tests that run at the same time need.
type room struct {
	mu   sync.Mutex
	idle []*testbed.Bed
	lent map[string]*testbed.Bed // by the name of the test
}

// started are all beds of all rooms; TestMain closes them.
var started struct {
	mu   sync.Mutex
	beds []*testbed.Bed
}

// parallel are the tests that run beside others by now.
var parallel sync.Map

// serial are tests that run alone, since what they do to the machine shows in others.
var serial = map[string]bool{
	// The kernel counts its kills for want of memory for the whole machine.
	"TestAKillIsOutOfMemoryOnlyWhereTheKernelCountedOne": true,
}

// borrow returns the test's bed of this room, the same one each time. The test runs beside
// others from the first call on, unless it is listed in serial.
func (r *room) borrow(t testing.TB, opts testbed.Options) *testbed.Bed {
	t.Helper()
	return r.take(t, runBesideOthers(t), opts)
}

// runBesideOthers makes a test parallel unless it is listed in serial, and returns its name
// without that of a subtest.
func runBesideOthers(t testing.TB) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if p, can := t.(interface{ Parallel() }); can && t.Name() == test && !serial[test] {
		if _, already := parallel.LoadOrStore(test, true); !already {
			p.Parallel()
		}
	}
	return test
}

// take returns the bed that is lent to a test, or lends it one.
func (r *room) take(t testing.TB, test string, opts testbed.Options) *testbed.Bed {
	t.Helper()
	muster(t)
	r.mu.Lock()
	bed := r.lent[test]
	if bed == nil && len(r.idle) > 0 {
		bed, r.idle = r.idle[len(r.idle)-1], r.idle[:len(r.idle)-1]
		r.lend(t, test, bed)
	}
	r.mu.Unlock()
	if bed != nil {
		return bed
	}
	bed = startBed(t, opts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lend(t, test, bed)
	return bed
}

// lend notes who has a bed until the test ends. The caller holds the lock.
func (r *room) lend(t testing.TB, test string, bed *testbed.Bed) {
	if r.lent == nil {
		r.lent = map[string]*testbed.Bed{}
	}
	r.lent[test] = bed
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.lent, test)
		if !t.Failed() { // what a failed test has left must not trouble the next one
			r.idle = append(r.idle, bed)
		}
	})
}

func startBed(t testing.TB, opts testbed.Options) *testbed.Bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opts.Keep = append(opts.Keep, workshop.dir)
	bed, err := testbed.Start(ctx, opts)
	if errors.Is(err, testbed.ErrNotRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	started.mu.Lock()
	defer started.mu.Unlock()
	started.beds = append(started.beds, bed)
	return bed
}
