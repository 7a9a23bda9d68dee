package mps

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// settings are what a server is started with, and what is changed of one that runs.
type settings struct {
	Percentage float64           `json:"percentage"` // (0, 100]
	Limits     map[int]string    `json:"limits"`     // by the server's ordinal, such as "1G"
	ByUUID     map[string]string `json:"by_uuid"`
	Priority   int               `json:"priority"`
}

func (s settings) clone() settings {
	s.Limits, s.ByUUID = maps.Clone(s.Limits), maps.Clone(s.ByUUID)
	return s
}

// fromEnvironment are the settings in this process's environment; Percentage 0: none. What
// CUDA does not understand it does not mention.
func fromEnvironment() settings {
	s := settings{Limits: map[int]string{}, ByUUID: map[string]string{}}
	if p, ok := percentage(os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")); ok {
		s.Percentage = p
	}
	if os.Getenv("CUDA_MPS_CLIENT_PRIORITY") == "1" {
		s.Priority = 1
	}
	for entry := range strings.SplitSeq(os.Getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), ",") {
		device, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
		if _, ok := size(value); !ok {
			continue
		}
		if n, err := strconv.Atoi(device); err == nil {
			s.Limits[n] = value
		} else if strings.HasPrefix(device, "GPU-") || strings.HasPrefix(device, "MIG-") {
			s.ByUUID[device] = value
		}
	}
	return s
}

// percentage reads a share of the threads: above 0, at most 100.
func percentage(text string) (float64, bool) {
	p, err := strconv.ParseFloat(text, 64)
	return p, err == nil && p > 0 && p <= 100
}

var sizeForm = regexp.MustCompile(`^([0-9]{1,9})([GM])$`)

// size reads a limit in the only form that MPS knows: an integer with G or M.
func size(text string) (bytes uint64, ok bool) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	unit := map[string]uint64{"G": 1 << 30, "M": 1 << 20}[m[2]]
	return n * unit, err == nil && n > 0
}

// limit is that of one device in bytes, 0 where there is none.
func (s settings) limit(ordinal int, uuid string) uint64 {
	bytes, _ := size(s.Limits[ordinal])
	for prefix, value := range s.ByUUID {
		if n, _ := size(value); strings.HasPrefix(uuid, prefix) {
			bytes = lower(bytes, n)
		}
	}
	return bytes
}

// lower is the lower of two limits, where 0 is none.
func lower(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
