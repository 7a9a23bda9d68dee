//go:build linux

package external

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/plugins/gpu"
)

func TestAPluginTellsWhatTheDriverReports(t *testing.T) {
	s := startOf(t, "watches")
	begun, err := s.WatchEvents(t.Context(), time.Second)
	if err != nil || len(begun.Events) != 0 || begun.Unsupported["GPU-b"] == "" {
		t.Fatalf("%+v, %v", begun, err)
	}
	heard, err := s.WatchEvents(t.Context(), 1500*time.Millisecond)
	if err != nil || len(heard.Events) != 1 {
		t.Fatalf("%+v, %v: kinds that are not known are passed over", heard, err)
	}
	if e := heard.Events[0]; e.Kind != gpu.EventXid || e.Xid != 79 || e.UUID != "GPU-a" || e.At != 12.5 || e.Text != "1.5s" {
		t.Errorf("%+v", e)
	}
}

func TestAPluginThatCannotWatchSaysSoAndStillAnswers(t *testing.T) {
	s := startOf(t, "good")
	_, err := s.WatchEvents(t.Context(), time.Second)
	isKind(t, err, KindUnsupported)
	if _, err := s.Probe(t.Context()); err != nil {
		t.Errorf("it is not asked any more: %v", err)
	}
}

func TestWhyAPluginDoesNotWatchIsItsOwnWord(t *testing.T) {
	_, err := startOf(t, "refuses-to-watch").WatchEvents(t.Context(), 0)
	isKind(t, err, KindRefused)
	if !strings.Contains(err.Error(), "the driver is too old for it") {
		t.Error(err)
	}
}

func TestAWatchThatDiesIsExplainedAndBeginsAnew(t *testing.T) {
	s := startOf(t, "exits-in-watch")
	if _, err := s.WatchEvents(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.WatchEvents(t.Context(), 0)
	isKind(t, err, KindFailed)
	if !strings.Contains(err.Error(), "SIGABRT: abort") {
		t.Errorf("its last words are missing: %v", err)
	}
	if _, err := s.WatchEvents(t.Context(), 0); err != nil {
		t.Errorf("it does not begin anew: %v", err)
	}
}

func TestAWatchThatHangsIsKilled(t *testing.T) {
	s := startOf(t, "hangs-in-watch")
	s.program.WatchMargin = 300 * time.Millisecond
	if _, err := s.WatchEvents(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := s.WatchEvents(t.Context(), time.Millisecond)
	isKind(t, err, KindFailed)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it was waited for %v", took)
	}
}

// isKind checks what is said to be wrong with a plugin.
func isKind(t *testing.T, err error, want Kind) {
	t.Helper()
	var of *Error
	if !errors.As(err, &of) || of.Kind != want {
		t.Fatalf("%v, want an error of kind %s", err, want)
	}
}

func TestEventsThatMakeNoSenseAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"7":                             "not a JSON object",
		`{"events": [{"kind": "xid"}]}`: "xid 0",
		`{"events": [{"kind": "xid", "xid": 79, "pci": "nowhere"}]}`: "not as in sysfs",
		`{"events": [{"kind": "lost", "uuid": "a b"}]}`:              "other signs",
		`{"events": [{"kind": "lost", "text": "\u001b[2J"}]}`:        "control characters",
		`{"unsupported": {"GPU-a": "\u0007"}}`:                       "control characters",
		`{"events": [{"kind": "xid", "xid": 100000, "uuid": "G"}]}`:  "xid 100000",
	} {
		t.Run(want, func(t *testing.T) {
			_, err := read(Program{Name: "x"}, []byte(text), checkEvents)
			isKind(t, err, KindFailed)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	if reported, err := startOf(t, "tells", "{}").WatchEvents(t.Context(), 0); err != nil || len(reported.Events) != 0 {
		t.Errorf("nothing: %+v, %v", reported, err)
	}
}

func TestACloseEndsAWatch(t *testing.T) {
	s := startOf(t, "hangs-in-watch")
	if _, err := s.WatchEvents(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.WatchEvents(context.Background(), time.Minute)
		ended <- err
	}()
	eventually(t, "the plugin is asked", s.isCalled)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	isKind(t, <-ended, KindClosed)
}

func TestAPluginWatchesByHandToo(t *testing.T) {
	var out, errs bytes.Buffer
	if status := byHand("test", &watcher{part: "watches"}, []string{"x", "watch"}, &out, &errs); status != 0 || !strings.Contains(out.String(), `"xid": 79`) || !strings.Contains(out.String(), "GPU-b") {
		t.Errorf("status %d: %s%s", status, &out, &errs)
	}
	if status := byHand("test", prober("good"), []string{"x", "watch"}, os.Stdout, &errs); status != 1 || !strings.Contains(errs.String(), "tells of no events") {
		t.Errorf("status %d: %s", status, &errs)
	}
}
