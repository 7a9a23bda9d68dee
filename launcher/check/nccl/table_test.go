package nccl

import (
	"strings"
	"testing"
)

// TestTablesAgree: every name that a table refers to is there.
func TestTablesAgree(t *testing.T) {
	seen := map[string]bool{}
	for row := range rows(variablesCSV) {
		if seen[row["name"]] {
			t.Errorf("%s is in the table twice", row["name"])
		}
		seen[row["name"]] = true
	}
	for name, v := range table().variables {
		switch {
		case table().others[name]:
			t.Errorf("%s is among the other names too", name)
		case !Concerns(name):
			t.Errorf("%s is of no family", name)
		case v.Low > v.High:
			t.Errorf("%s has no range", name)
		case v.Instead != "" && !v.Deprecated.known(), v.Instead == "" && v.Deprecated.known():
			t.Errorf("%s is half deprecated", name)
		case (v.Kind == Word || v.Kind == ExactWord || v.Kind == WordList || v.Kind == Level || v.Kind == Algorithms) != (len(v.Words) > 0):
			t.Errorf("%s has words, or none, against its kind", name)
		}
		for _, other := range []string{v.Former, v.Instead} {
			if _, known := table().variables[other]; other != "" && !known && !table().others[other] {
				t.Errorf("%s refers to %s, which is not there", name, other)
			}
		}
	}
	for _, a := range Attributes {
		v, known := Lookup(a.Variable)
		if !known || a.Form != AsSeconds && a.Form != AsMilliseconds && v.High != 0 && a.High > v.High || a.Low < v.Low {
			t.Errorf("%s sets %s, which takes other values", a.Name, a.Variable)
		}
	}
}

// TestTableHasTheGuidesFacts: ranges and releases as the user guide has them:
// NAME since low high.
func TestTableHasTheGuidesFacts(t *testing.T) {
	for _, c := range []struct {
		name      string
		since     Release
		low, high int64
	}{
		{"NCCL_SOCKET_NTHREADS", at(4, 8), 1, 16},
		{"NCCL_SOCKET_RETRY_CNT", at(24), 1, 1 << 31},
		{"NCCL_IB_TIMEOUT", Release{}, 1, 31},
		{"NCCL_IB_RETRY_CNT", Release{}, 0, 7},
		{"NCCL_IB_QPS_PER_CONNECTION", at(10), 1, 128},
		{"NCCL_IB_PCI_RELAXED_ORDERING", at(12), 0, 2},
		{"NCCL_CROSS_NIC", Release{}, 0, 2},
		{"NCCL_MNNVL_ENABLE", at(21), 0, 2},
		{"NCCL_NVLS_ENABLE", at(17), 0, 2},
		{"NCCL_NTHREADS", Release{}, 64, 512},
		{"NCCL_MIN_CTAS", at(17), 1, 64},
		{"NCCL_MAX_CTAS", at(17), 1, 64},
		{"NCCL_RUNTIME_CONNECT", at(22), 0, 0},
		{"NCCL_CUMEM_ENABLE", at(18), 0, 0},
		{"NCCL_CUMEM_HOST_ENABLE", at(23), 0, 0},
		{"NCCL_MULTI_RANK_GPU_ENABLE", at(30), 0, 0},
		{"NCCL_IB_ADAPTIVE_ROUTING", at(16), 0, 0},
		{"NCCL_IB_MERGE_NICS", at(20), 0, 0},
		{"NCCL_DMABUF_ENABLE", at(13), 0, 0},
		{"NCCL_PXN_DISABLE", at(12), 0, 0},
		{"NCCL_CONF_FILE", at(23), 0, 0},
		{"NCCL_RAS_ENABLE", at(24), 0, 0},
		{"NCCL_CTA_POLICY", at(27), 0, 0},
	} {
		v, known := Lookup(c.name)
		if !known || v.Since != c.since || v.Low != c.low || v.High != c.high {
			t.Errorf("%s: %+v, want %+v", c.name, v, c)
		}
	}
}

// TestBufferCost: the sums of the sizes that NCCL's source has.
func TestBufferCost(t *testing.T) {
	if got := BufferCost(DefaultBuffer, 1, 1); got != 9633792 {
		t.Errorf("one connection takes %d bytes", got)
	}
	if saved := BufferCost(DefaultBuffer, 24, 1) - BufferCost(DefaultBuffer/2, 24, 1); saved != 24*(2<<20) {
		t.Errorf("half of the size saves %d bytes", saved)
	}
	for note, want := range map[string][]string{
		BufferNote(16<<20, 0, []string{"all ranks", "tensor"}): {
			"buffers of 16 MiB: with about 24 channels, each communicator takes 0.5 GiB to 2.0 GiB of every GPU",
			"with the default of 4 MiB 0.2 GiB to 0.9 GiB",
			"this job probably has 2 (all ranks, tensor), which take 1.0 GiB to 4.0 GiB",
			"16 MiB is not the default of NCCL",
		},
		BufferNote(DefaultBuffer, 8, []string{"all ranks"}): {"at most 8 channels", "0.1 GiB to 0.3 GiB", "this is the default of NCCL"},
		BufferNote(512<<10, 0, nil):                         {"buffers of 512 KiB"},
	} {
		for _, part := range want {
			if !strings.Contains(note, part) {
				t.Errorf("%q lacks %q", note, part)
			}
		}
	}
}
