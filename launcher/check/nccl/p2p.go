package nccl

import (
	"slices"
	"strings"
)

// paths are NCCL's distances between GPUs, near ones first (PATH_* in src/graph/topo.h).
var paths = []string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}

// AllowsP2P reports whether NCCL may have GPUs reach into each other's memory by a way as
// nvidia-smi topo names it, with these values of NCCL_P2P_DISABLE and NCCL_P2P_LEVEL. A level
// that NCCL does not know leaves it to NCCL.
func AllowsP2P(way, disable, level string) bool {
	if off := readNumber(disable, 0); off.n == 1 && !off.huge {
		return false
	}
	if n := readNumber(level, 0); !n.none && !n.huge && strings.TrimSpace(n.rest) == "" {
		level = oldLevels[min(max(0, n.n), int64(len(oldLevels)-1))]
	}
	if way == "NODE" { // which NCCL does not tell from it
		way = "PHB"
	}
	farthest := slices.Index(paths, level)
	return farthest < 0 || slices.Index(paths, way) <= farthest
}
