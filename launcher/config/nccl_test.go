package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/muster-dev/muster/launcher/check/nccl"
	"github.com/muster-dev/muster/launcher/config/decode"
)

// withNCCL evaluates a job file of one local host with these lines in its nccl block and
// these in its env.
func withNCCL(block, env string) (*Job, Source, hcl.Diagnostics) {
	src := Source{Filename: "job.hcl", Text: fmt.Appendf(nil,
		"job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n nccl {\n%s\n }\n env = {\n%s\n }\n}", block, env)}
	f := decode.Parse(src.Filename, src.Text, nil)
	job := decodeFile(src, f)
	for i, host := range job.Hosts {
		e := envReader{f.Evaluator, f.Scope.Context(&RankScope{WorldSize: 2, HostName: host.Name, HostIndex: i}), false}
		warnOfEnv(f.Evaluator, job, host, e.merge(map[string]EnvVar{}, job.env, host.env))
	}
	return job, src, f.Diagnostics()
}

// TestNCCLAttributesAsNCCLReadsThem: what an attribute sets.
func TestNCCLAttributesAsNCCLReadsThem(t *testing.T) {
	for line, want := range map[string]string{
		`buffer_size = "8MiB"`:               "NCCL_BUFFSIZE=8388608",
		`buffer_size = "0.5MiB"`:             "NCCL_BUFFSIZE=524288",
		`p2p_level = "NVL"`:                  "NCCL_P2P_LEVEL=NVL",
		`p2p_disable = true`:                 "NCCL_P2P_DISABLE=1",
		`ib_disable = "false"`:               "NCCL_IB_DISABLE=0",
		`socket_ifname = ["eth0", "ib0"]`:    "NCCL_SOCKET_IFNAME==eth0,ib0",
		`socket_ifname = "^docker,lo"`:       "NCCL_SOCKET_IFNAME=^docker,lo",
		`ib_hca = ["mlx5_1:1"]`:              "NCCL_IB_HCA==mlx5_1:1",
		`ib_gid_index = 3`:                   "NCCL_IB_GID_INDEX=3",
		`debug_subsys = "INIT,^NET"`:         "NCCL_DEBUG_SUBSYS=INIT,^NET",
		`algo = ["Ring", "Tree"]`:            "NCCL_ALGO=Ring,Tree",
		`proto = "^LL128"`:                   "NCCL_PROTO=^LL128",
		`nvls_enable = true`:                 "NCCL_NVLS_ENABLE=1",
		`nvls_enable = 2`:                    "NCCL_NVLS_ENABLE=2",
		`max_ctas = 8`:                       "NCCL_MAX_CTAS=8",
		`heartbeat_timeout = "20m"`:          "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200",
		`dump_wait = "1m"`:                   "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=60000",
		`trace_buffer_events = 0`:            "TORCH_NCCL_TRACE_BUFFER_SIZE=0",
		`async_error_handling = false`:       "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
		`trace_file = "/tmp/nccl_trace_x"`:   "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/nccl_trace_x",
		`p2p_disable = null`:                 "",
		`debug = false ? "INFO" : null`:      "",
		`cross_nic = true ? 1 : 0`:           "NCCL_CROSS_NIC=1",
		`p2p_level = true ? "PXB" : "LOC"`:   "NCCL_P2P_LEVEL=PXB",
		`socket_ifname = concat(["a"], [])`:  "NCCL_SOCKET_IFNAME==a",
		`debug_file = "/tmp/${"x"}.%h.%p.l"`: "NCCL_DEBUG_FILE=/tmp/x.%h.%p.l",
	} {
		job, src, diags := withNCCL(line, "")
		if len(diags) > 0 {
			t.Errorf("%s gives\n%s", line, printed(src, diags))
			continue
		}
		var got []string
		vars, _ := job.NCCL.Vars(nccl.Version{})
		for _, v := range vars {
			got = append(got, v.Name+"="+v.Value)
			if v.Source != "job.hcl:5" {
				t.Errorf("%s comes from %q", line, v.Source)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s sets %q, not %q", line, got, want)
		}
	}
}

// TestNCCLSaysWhatToWrite: what is wrong in the block gets the right thing to write.
func TestNCCLSaysWhatToWrite(t *testing.T) {
	for line, want := range map[string]string{
		`p2p_level = "nvl"`:          `Did you mean "NVL"?`,
		`p2p_level = 4`:              `It is one of "LOC", "NVL", "PIX", "PXB", "PHB", "SYS"`,
		`net_gdr_level = "pix"`:      `Did you mean "PIX"?`,
		`debug_subsys = ["Init"]`:    `Did you mean "INIT"?`,
		`buffer_size = "4M"`:         `write "4MiB"`,
		`buffer_size = 4194304`:      `write "4MiB" for bytes`,
		`buffer_size = "4KiB"`:       "buffer_size lies between 64KiB and 1GiB",
		`buffer_size = "3MiB"`:       `such as "2MiB"`,
		`algo = "rings"`:             "Ring, Tree",
		`algo = "ring, tree"`:        "write the list without spaces",
		`socket_ifname = "a, b"`:     "Write the list without spaces",
		`socket_ifname = "=a,=b"`:    "write one = before the first name",
		`ib_hca = "mlx5_1"`:          "Write =mlx5_1",
		`ib_hca = ["mlx5_1,mlx5_2"]`: "one name, without spaces and commas",
		`heartbeat_timeout = "1.5s"`: `such as "2s"`,
		`heartbeat_timeout = 480`:    `write "480s" for seconds`,
		`max_channels = 8`:           "write max_ctas",
		`topo = "x"`:                 "Other variables of NCCL and torch can be set in env",
		`topo_files = "x"`:           `Did you mean "topo_file"?`,
		`debug_file = "/tmp/x"`:      "Write /tmp/x.%h.%p",
	} {
		_, src, diags := withNCCL(line, "")
		if len(diags) != 1 || !strings.Contains(strings.ToLower(diags[0].Detail), strings.ToLower(want)) || diags[0].Subject.Start.Line != 5 {
			t.Errorf("%s gives\n%swant %s", line, printed(src, diags), want)
		}
	}
}

// TestEnvThatNCCLWouldMisread: what env sets is warned of at its own place.
func TestEnvThatNCCLWouldMisread(t *testing.T) {
	for env, want := range map[string]string{
		`NCCL_BUFFSIZE = "4M"`:               "7:18 Dangerous value: NCCL_BUFFSIZE=4M: NCCL reads no units, and takes this as 4. Write 4194304.",
		`NCCL_IB_DISABLE = true`:             "7:20 Dangerous value: NCCL_IB_DISABLE=true: NCCL reads a number here, and takes this as 0. Write 1.",
		`NCCL_TIMEOUT = 1800`:                "7:2 Unknown NCCL variable: NCCL_TIMEOUT is read by neither NCCL nor torch. Give the time to torch.distributed.init_process_group(timeout=...); no variable sets it.",
		`"NCCL_BUFFERSIZE" = 1`:              "7:2 Unknown NCCL variable: NCCL_BUFFERSIZE is read by neither NCCL nor torch. Did you mean NCCL_BUFFSIZE?",
		`NCCL_DEBUG = "info"`:                "",
		`A = 1, NCCL_P2P_LEVEL = "nvl"`:      "7:26 Dangerous value: NCCL_P2P_LEVEL=nvl: NCCL knows no such distance, and ignores it without a word. Write NVL, not nvl.",
		`(lower("nccl")) = "x"`:              "",
		`NCCL_IB_TIMEOUT = 10 + rank.local`:  "",
		`NCCL_MAX_NCHANNELS = 4`:             "7:2 Set twice: NCCL_MAX_NCHANNELS is set here and by max_ctas of the nccl block at job.hcl:5: env wins. Keep one of the two.",
		`TORCH_NCCL_BLOCKING_WAIT = "maybe"`: "7:29 Dangerous value: TORCH_NCCL_BLOCKING_WAIT=maybe: torch stops with an error, as this is neither true nor false. Write 1 or 0.",
	} {
		_, src, diags := withNCCL("max_ctas = 4", " "+env)
		var got []string
		for _, diag := range diags {
			got = append(got, fmt.Sprintf("%d:%d %s: %s", diag.Subject.Start.Line-1, diag.Subject.Start.Column, diag.Summary, diag.Detail))
		}
		if !slices.Equal(got, slices.DeleteFunc([]string{want}, func(s string) bool { return s == "" })) {
			t.Errorf("%s gives\n%q\nwant\n%q\n%s", env, got, want, printed(src, diags))
		}
	}
}

// Who writes NCCL's own name of a variable is told the argument's.
func TestVariablesOfNCCLAreAnsweredWithTheirArguments(t *testing.T) {
	for name, want := range map[string]string{
		"NCCL_BUFFSIZE": "Write buffer_size = ...", "buffsize": "Write buffer_size = ...", "bufsize": "Write buffer_size = ...",
		"nccl-min-nchannels": "Write min_ctas = ...", "p2p_levl": `Did you mean "p2p_level"?`,
	} {
		if _, src, diags := withNCCL(name+" = 1", ""); len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
			t.Errorf("%s: %s", name, printed(src, diags))
		}
	}
}
