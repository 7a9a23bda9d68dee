//go:build linux

package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestADeviceIsClaimedOnce(t *testing.T) {
	uuid := "GPU-" + strings.ToLower(rand.Text())
	first, err := Device(uuid, "llama-7f3a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Device(uuid, "other"); !errors.Is(err, ErrTaken) {
		t.Errorf("claimed twice: %v", err)
	}
	if got := Holders()[uuid]; got != "llama-7f3a" {
		t.Errorf("held by %q", got)
	}
	for _, f := range first {
		f.Close()
	}
	if got, held := Holders()[uuid]; held {
		t.Errorf("held by %q after it was let go", got)
	}
	long := strings.Repeat("long-", 30)
	again, err := Device(uuid, long)
	if err != nil {
		t.Fatal(err)
	}
	if got := Holders()[uuid]; got == "" || !strings.HasPrefix(long, got) {
		t.Errorf("held by %q", got)
	}
	for _, f := range again {
		f.Close()
	}
}

func TestLaunchesChooseOneAfterTheOther(t *testing.T) {
	first := Choosing(t.Context())
	if first == nil {
		t.Fatal("another launch on this machine is choosing")
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if second := Choosing(soon); second != nil {
		t.Fatal("two choose at once")
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		first.Close()
	}()
	limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	second := Choosing(limit)
	if second == nil {
		t.Fatal("nobody may choose after the first has")
	}
	second.Close()
}
