//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// later is what a worker holds from a time on.
type later struct {
	after    time.Duration // since the one before
	bytes    uint64        // of its device
	resident uint64        // of the host's memory, beside the little that it has anyway
}

// laters reads a list such as 500ms=4GiB,1s=1GiB+300MiB.
func laters(list string) (all []later, err error) {
	for entry := range strings.SplitSeq(list, ",") {
		if entry == "" {
			continue
		}
		after, amounts, is := strings.Cut(entry, "=")
		var l later
		if l.after, err = time.ParseDuration(after); err != nil || !is {
			return nil, fmt.Errorf("-then %s: not as in 500ms=4GiB", entry)
		}
		device, host, is := strings.Cut(amounts, "+")
		if l.bytes, err = bytes(device); err == nil && is {
			l.resident, err = bytes(host)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// schedule is what is still to come of a worker's memory.
type schedule struct {
	left     []later
	next     time.Time // from when the first of them counts
	holding  gpus.Holding
	resident []byte
}

// keep takes or gives back what it is time for.
func (s *schedule) keep(now time.Time) error {
	for len(s.left) > 0 && now.Sub(s.next) >= s.left[0].after {
		l := s.left[0]
		s.left, s.next = s.left[1:], s.next.Add(l.after)
		s.holding.Bytes = l.bytes
		if _, err := gpus.Note(gpus.Here(), s.holding); err != nil {
			return err
		}
		s.resident = make([]byte, l.resident)
		for i := 0; i < len(s.resident); i += os.Getpagesize() {
			s.resident[i] = 1
		}
	}
	return nil
}
