package main

import (
	"strings"
	"testing"
)

// A limit that torch can exceed is none, whatever the daemon says of it.
func TestLimitsOfMPSMustHoldForTorch(t *testing.T) {
	const gpu = "GPU-a"
	h := &sharing{s: &session{usable: []row{{UUID: gpu}}}}
	for _, c := range []struct {
		name, uuid string
		has        *share
		fails      string
	}{
		{"as it is to be", gpu, &share{Right: true, Refused: true, Free: mpsLimit - 1<<20, Processors: 33}, ""},
		{"by no torch", gpu, nil, ""},
		{"on another GPU", "GPU-b", nil, "is on GPU-b, not on GPU-a"},
		{"more memory than the limit", gpu, &share{Right: true, Free: mpsLimit}, "and was given 3221225472"},
		{"all is free", gpu, &share{Right: true, Refused: true, Free: 80 << 30}, "85899345920 free"},
		{"wrong numbers", gpu, &share{Refused: true}, "computes wrongly"},
	} {
		err := h.hasItsShare(worker{Rank: "2", PID: 7, UUID: c.uuid, Share: c.has})
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
