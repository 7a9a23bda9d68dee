//go:build linux

package agent

import (
	"slices"
	"testing"
	"time"
)

func TestAWaitIsSaidEachTimeItHasDoubled(t *testing.T) {
	done := make(chan struct{})
	var said []time.Duration
	awaitPatiently(done, time.Millisecond, func(passed time.Duration) {
		if said = append(said, passed/time.Millisecond); len(said) == 4 {
			close(done)
		}
	})
	if !slices.Equal(said, []time.Duration{1, 2, 4, 8}) {
		t.Errorf("said after %v ms", said)
	}
}

func TestTheLastLineThatSaysSomethingIsQuoted(t *testing.T) {
	for text, want := range map[string]string{"": "", "\n\n": "", "one\ntwo\n\n": "two", "one": "one"} {
		if got := lastLine([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
