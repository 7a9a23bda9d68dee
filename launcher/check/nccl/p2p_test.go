package nccl

import "testing"

func TestWhatSettingsLeaveOfDirectAccessByPCIe(t *testing.T) {
	for _, c := range []struct {
		way, disable, level string
		want                bool
	}{
		{"PIX", "", "", true},
		{"SYS", "", "", true},
		{"PIX", "1", "", false},
		{"PIX", "true", "", true}, // NCCL reads 0
		{"PIX", "0", "NVL", false},
		{"PIX", "", "nvl", true}, // and no such word
		{"PIX", "", "PIX", true},
		{"PXB", "", "PIX", false},
		{"NODE", "", "PHB", true},
		{"NODE", "", "PXB", false},
		{"PIX", "", "LOC", false},
		{"PIX", "", "0", false},
		{"PHB", "", "3", true},
		{"SYS", "", "3", false},
		{"SYS", "", "9", true},
	} {
		if got := AllowsP2P(c.way, c.disable, c.level); got != c.want {
			t.Errorf("%s with NCCL_P2P_DISABLE=%q and NCCL_P2P_LEVEL=%q: %v", c.way, c.disable, c.level, got)
		}
	}
}
