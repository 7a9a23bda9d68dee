package nccl

import (
	"strings"
	"testing"
)

// seen are the codes of findings, in order.
func seen(found []Finding) string {
	var codes []string
	for _, f := range found {
		codes = append(codes, f.Code)
	}
	return strings.Join(codes, " ")
}

// TestMisreads: NAME=VALUE, the releases found (NCCL torch) and what is said of them.
func TestMisreads(t *testing.T) {
	for _, c := range []struct{ given, found, code, says string }{
		// Numbers go through strtoll with base 0.
		{"NCCL_BUFFSIZE=8388608", "", "", ""},
		{"NCCL_BUFFSIZE=4M", "", CodeNumber, "takes this as 4; write 4194304"},
		{"NCCL_BUFFSIZE=4MiB", "", CodeNumber, "takes this as 4; write 4194304"},
		{"NCCL_BUFFSIZE=16MB", "", CodeNumber, "takes this as 16; write 16777216"},
		{"NCCL_BUFFSIZE=0.5G", "", CodeNumber, "takes this as 0; write 536870912"},
		{"NCCL_BUFFSIZE=4", "", CodeRange, "NCCL checks no minimum"},
		{"NCCL_BUFFSIZE=0x400000", "", "", ""},
		{"NCCL_BUFFSIZE=99999999999999999999", "", CodeNumber, "takes its default"},
		{"NCCL_BUFFSIZE=", "", "", ""},
		{"NCCL_IB_GID_INDEX=010", "", CodeNumber, "octal, this one as 8; write 10"},
		{"NCCL_IB_GID_INDEX=-1", "", "", ""},
		{"NCCL_IB_DISABLE=true", "", CodeNumber, "takes this as 0; write 1"},
		{"NCCL_IB_DISABLE=yes", "", CodeNumber, "takes this as 0; write 1"},
		{"NCCL_SHM_DISABLE=off", "", CodeNumber, "takes this as 0; write 0"},
		{"NCCL_SHM_DISABLE=1\n", "", "", ""},
		{"NCCL_P2P_DISABLE=1", "", "", ""},
		{"NCCL_P2P_DISABLE=2", "", CodeRange, "only 1 disables"},
		{"NCCL_IB_TIMEOUT=22", "", "", ""},
		{"NCCL_IB_TIMEOUT=32", "", CodeRange, "it waits for ever"},
		{"NCCL_IB_TIMEOUT=0", "", CodeRange, "it waits for ever"},
		{"NCCL_IB_RETRY_CNT=8", "", CodeRange, "between 0 and 7"},
		{"NCCL_NVLS_ENABLE=3", "", CodeRange, "between 0 and 2"},
		{"NCCL_MAX_CTAS=64", "", "", ""},
		{"NCCL_MAX_CTAS=64", "2.24.3", CodeRange, "between 1 and 32"},
		{"NCCL_MAX_CTAS=64", "2.25.1", "", ""},

		// Words.
		{"NCCL_P2P_LEVEL=NVL", "", "", ""},
		{"NCCL_P2P_LEVEL=PXN", "", "", ""},
		{"NCCL_P2P_LEVEL=nvl", "", CodeWord, "write NVL, not nvl"},
		{"NCCL_P2P_LEVEL=NVLINK", "", CodeWord, "ignores it without a word; write NVL"},
		{"NCCL_P2P_LEVEL=3", "", CodeLevel, "write PHB"},
		{"NCCL_P2P_LEVEL=0", "", CodeLevel, "write LOC"},
		{"NCCL_P2P_LEVEL=7", "", CodeLevel, "write SYS"},
		{"NCCL_NET_GDR_LEVEL=pix", "", CodeWord, "write PIX, not pix"},
		{"NCCL_DEBUG=info", "", "", ""},
		{"NCCL_DEBUG=DEBUG", "", CodeWord, "VERSION, WARN, INFO"},
		{"NCCL_DEBUG=1", "", CodeWord, "VERSION, WARN, INFO"},
		{"NCCL_DEBUG=ATTN", "2.30.7", CodeVersion, "came with 2.32"},
		{"NCCL_DEBUG_SUBSYS=INIT,GRAPH", "", "", ""},
		{"NCCL_DEBUG_SUBSYS=^INIT,^ENV", "", "", ""},
		{"NCCL_DEBUG_SUBSYS=INIT,TOPOLOGY", "", CodeWord, "TOPOLOGY"},
		{"NCCL_SOCKET_FAMILY=af_inet", "", CodeWord, "write AF_INET, not af_inet"},

		// Algorithms.
		{"NCCL_ALGO=Tree", "", "", ""},
		{"NCCL_ALGO=Tree", "2.23.4", "", ""},
		{"NCCL_ALGO=Tree", "2.24.3", CodeAlgorithm, "allreduce:Tree"},
		{"NCCL_ALGO=ring,tree", "2.27.3", "", ""},
		{"NCCL_ALGO=allreduce:tree", "2.27.3", "", ""},
		{"NCCL_ALGO=allreduce:tree", "2.20.5", CodeVersion, "no lists per function"},
		{"NCCL_ALGO=^tree", "2.27.3", "", ""},
		{"NCCL_ALGO=Ringg", "", CodeWord, "since 2.24 it fails"},
		{"NCCL_ALGO=NVLSTree,Ring", "2.16.2", CodeVersion, "came with 2.18"},
		{"NCCL_PROTO=Simple", "", "", ""},
		{"NCCL_PROTO=LL128", "", CodeCorrupt, "can corrupt data"},
		{"NCCL_PROTO=ll128,simple", "", CodeCorrupt, "can corrupt data"},
		{"NCCL_PROTO=^LL128", "", "", ""},

		// Lists of devices.
		{"NCCL_IB_HCA==mlx5_0,mlx5_1", "", "", ""},
		{"NCCL_IB_HCA=mlx5", "", "", ""},
		{"NCCL_IB_HCA=mlx5_0", "", "", ""},
		{"NCCL_IB_HCA=mlx5_1", "", CodePrefix, "takes mlx5_10 to mlx5_19 too; write =mlx5_1"},
		{"NCCL_IB_HCA=^mlx5_1:1,mlx5_4", "", CodePrefix, "write ^=mlx5_1:1,mlx5_4"},
		{"NCCL_IB_HCA==mlx5_0:1:0:0", "2.29.3", CodeVersion, "no rails"},
		{"NCCL_IB_HCA==mlx5_0:1:0:0", "2.30.3", "", ""},
		{"NCCL_IB_HCA==" + strings.Repeat("mlx5_0,", 32) + "mlx5_1", "", CodeList, "32 devices at most"},
		{"NCCL_SOCKET_IFNAME==eth0", "", "", ""},
		{"NCCL_SOCKET_IFNAME=^docker,lo", "", "", ""},
		{"NCCL_SOCKET_IFNAME=^=docker0", "", "", ""},
		{"NCCL_SOCKET_IFNAME=eth0, eth1", "", CodeList, "without spaces"},
		{"NCCL_SOCKET_IFNAME==eth0,=eth1", "", CodeList, "one ="},
		{"NCCL_SOCKET_IFNAME=^docker,^lo", "", CodeList, "one ^"},

		// Files.
		{"NCCL_DEBUG_FILE=/tmp/n.%h.%p", "", "", ""},
		{"NCCL_DEBUG_FILE=/dev/stderr", "", "", ""},
		{"NCCL_DEBUG_FILE=/tmp/n", "", CodeFile, "write /tmp/n.%h.%p"},
		{"NCCL_DEBUG_FILE=~/n.%p", "", CodeFile, "in full"},
		{"NCCL_TOPO_FILE=~/t.xml", "", CodeFile, "in full"},

		// Names and releases.
		{"NCCL_BUFFERSIZE=1", "", CodeUnknown, "did you mean NCCL_BUFFSIZE?"},
		{"NCCL_SOCKET_IFACE=eth0", "", CodeUnknown, "did you mean NCCL_SOCKET_IFNAME?"},
		{"NCCL_TIMEOUT=1800", "", CodeUnknown, "init_process_group"},
		{"NCCL_HEARTBEAT_TIMEOUT_SEC=1", "", CodeUnknown, "did you mean TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC?"},
		{"NCCL_SOMETHING_ELSE_ENTIRELY=1", "", CodeUnknown, "unless a plugin"},
		{"NCCL_SOMETHING_ELSE_ENTIRELY=1", "2.31.1", "", ""},
		{"NCCL_NET_PLUGIN=none", "", "", ""},
		{"NCCL_VERSION=2.18.5-1", "", "", ""},
		{"NCCL_FASTRAK_IFNAME=eth1", "", "", ""},
		{"NCCL_MAX_NCHANNELS=8", "", "", ""},
		{"NCCL_MAX_NCHANNELS=8", "2.20.5", CodeDeprecated, "write NCCL_MAX_CTAS"},
		{"NCCL_MAX_CTAS=8", "2.16.2", CodeVersion, "came with 2.17; write NCCL_MAX_NCHANNELS"},
		{"NCCL_IB_GDR_LEVEL=PIX", "2.20.5", CodeVersion, "write NCCL_NET_GDR_LEVEL"},
		{"NCCL_RAS_ENABLE=0", "2.20.5", CodeVersion, "came with 2.24"},
		{"HOME=4M", "", "", ""},

		// What torch reads.
		{"NCCL_ASYNC_ERROR_HANDLING=1", "", "", ""},
		{"NCCL_ASYNC_ERROR_HANDLING=1", "2.19.3 2.1.2", "", ""},
		{"NCCL_ASYNC_ERROR_HANDLING=1", "2.20.5 2.4.0+cu121", CodeDeprecated, "write TORCH_NCCL_ASYNC_ERROR_HANDLING"},
		{"TORCH_NCCL_BLOCKING_WAIT=1", "2.19.3 2.1.2", CodeVersion, "write NCCL_BLOCKING_WAIT"},
		{"TORCH_NCCL_BLOCKING_WAIT=True", "", "", ""},
		{"TORCH_NCCL_BLOCKING_WAIT=on", "", CodeNumber, "torch stops with an error"},
		{"TORCH_NCCL_BLOCKING_WAIT=", "", CodeNumber, "torch stops with an error"},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=10m", "", CodeNumber, "takes this as 10"},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=010", "", "", ""},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=never", "", CodeNumber, "torch stops with an error"},
		{"TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "2.20.5 2.4.0", "", ""},
		{"TORCH_NCCL_TRACE_BUFFER", "", CodeUnknown, "unless a plugin"},
		{"TORCH_DISTRIBUTED_DEBUG=detail", "", "", ""},
		{"TORCH_DISTRIBUTED_DEBUG=2", "", CodeWord, "OFF, INFO, DETAIL"},
	} {
		name, value, _ := strings.Cut(c.given, "=")
		nccl, torch, _ := strings.Cut(c.found, " ")
		found := Check(name, value, ParseVersion(nccl, torch))
		if seen(found) != c.code {
			t.Errorf("%s with %q: %+v, want %q", c.given, c.found, found, c.code)
			continue
		}
		for _, f := range found {
			if text := f.Message + "; " + f.Fix; !strings.Contains(text, c.says) || f.Fix == "" {
				t.Errorf("%s with %q says %q, want %q", c.given, c.found, text, c.says)
			}
		}
	}
}

// TestOnlyWhatTheReleaseAdds: what holds for all releases is not said again.
func TestOnlyWhatTheReleaseAdds(t *testing.T) {
	v := ParseVersion("2.24.3", "")
	if found := CheckVersion("NCCL_P2P_LEVEL", "nvl", v); len(found) > 0 {
		t.Error(found)
	}
	if found := CheckVersion("NCCL_ALGO", "Tree", v); seen(found) != CodeAlgorithm {
		t.Error(found)
	}
}

// TestNamesThatAreTaken: lists as NCCL matches them.
func TestNamesThatAreTaken(t *testing.T) {
	for _, c := range []struct {
		list, device string
		taken        bool
	}{
		{"eth", "eth10", true}, {"eth1", "eth10", true}, {"=eth1", "eth10", false}, {"=eth1,eth10", "eth10", true},
		{"^docker", "docker0", false}, {"^docker", "eth0", true}, {"^=docker0", "docker01", true}, {"=mlx5_0:1", "mlx5_0", true},
	} {
		if got := ParseNames(c.list).Takes(c.device); got != c.taken || ParseNames(c.list).String() != c.list {
			t.Errorf("%s takes %s: %v", c.list, c.device, got)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Release{
		"2.20.5": at(20, 5), "2.4.0+cu121": at(4), "2.27.3-1": at(27, 3), "2.11.0a0+git1": at(11), "2.30.7+cuda13.3": at(30, 7),
		"2.18": at(18), "": {}, "unknown": {}, "2.x": {}, "1.13.1": {1, 13, 1},
	} {
		if got := ParseVersion(text, text); got != (Version{want, want}) {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// FuzzCheck: no value of any variable makes it fail.
func FuzzCheck(f *testing.F) {
	f.Add("NCCL_ALGO", "^;:,,")
	f.Add("NCCL_P2P_LEVEL", "9x")
	f.Add("NCCL_IB_HCA", "^=:,")
	f.Add("NCCL_BUFFSIZE", "-0x")
	f.Fuzz(func(t *testing.T, name, value string) {
		Check(name, value, Version{})
		for variable := range table().variables {
			for _, found := range Check(variable, value, ParseVersion("2.30.7", "2.4.0")) {
				if found.Code == "" || found.Message == "" || found.Fix == "" {
					t.Errorf("%s=%q: %+v", variable, value, found)
				}
			}
		}
	})
}

// at is a release of NCCL or torch 2.
func at(minor int, patch ...int) Release {
	return Release{2, minor, append(patch, 0)[0]}
}
