package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/lint"
	"github.com/muster-dev/muster/launcher/check/rule"
	"github.com/muster-dev/muster/launcher/config"
	"github.com/muster-dev/muster/launcher/facts"
	"github.com/muster-dev/muster/launcher/plan"
	"github.com/muster-dev/muster/launcher/plan/environ"
)

// with makes a job on hosts m0, m1, ... with these lines in the job block.
func with(t *testing.T, hosts int, lines ...string) *config.Job {
	t.Helper()
	names := []string{`"m0"`, `"m1"`, `"m2"`}[:hosts]
	return job(t, "job \"j\" {\n  command = [\"true\"]\n  hosts \"ssh\" {\n    names = ["+strings.Join(names, ", ")+"]\n  }\n"+strings.Join(lines, "\n")+"\n}")
}

func ran(torch, nccl string) plan.Meeting {
	return plan.Meeting{Software: []facts.Software{{Torch: torch, NCCL: nccl}, {Torch: torch, NCCL: nccl}}}
}

func sourceOf(t *testing.T, p *plan.Plan, rank int, m plan.Meeting, name string) string {
	t.Helper()
	vars, err := environ.Of(p, rank, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars {
		if v.Name == name {
			return v.Source
		}
	}
	return ""
}

func TestNCCLIsToldInTheFormThatItReads(t *testing.T) {
	p := mustMake(t, with(t, 1, "nccl {\n  buffer_size = \"8MiB\"\n  p2p_level = \"NVL\"\n  ib_disable = true\n}"), machine(0, 4, nvswitch))
	e := env(t, p, 0, ran("2.4.0", "2.20.5"))
	for name, want := range map[string]string{"NCCL_BUFFSIZE": "8388608", "NCCL_P2P_LEVEL": "NVL", "NCCL_IB_DISABLE": "1"} {
		if e[name] != want {
			t.Errorf("%s=%q, want %q", name, e[name], want)
		}
	}
	if got := sourceOf(t, p, 0, plan.Meeting{}, "NCCL_BUFFSIZE"); !strings.HasPrefix(got, "job.hcl:7") {
		t.Errorf("source %q", got)
	}
	mustHold(t, inWords(p.Notes), "4 MiB")
}

func TestEnvWinsOverTheBlockUnderAnyName(t *testing.T) {
	p := mustMake(t, with(t, 1, "nccl { max_ctas = 8 }", "env = { NCCL_MAX_NCHANNELS = 4 }"), machine(0, 4, nvswitch))
	e := env(t, p, 0, ran("2.4.0", "2.20.5"))
	if value, set := e["NCCL_MAX_CTAS"]; set || e["NCCL_MAX_NCHANNELS"] != "4" {
		t.Errorf("NCCL_MAX_CTAS=%q beside NCCL_MAX_NCHANNELS=%s", value, e["NCCL_MAX_NCHANNELS"])
	}
}

func TestP2POnlyByNVLinkWhereThereIsNoneIsSaid(t *testing.T) {
	p := mustMake(t, with(t, 1, "nccl { p2p_level = \"NVL\" }"), machine(0, 4, pcie))
	mustHold(t, inWords(p.Warnings), "m0: ", "NVLink")
	if p := mustMake(t, with(t, 1, "nccl { p2p_level = \"NVL\" }"), machine(0, 4, nvswitch)); len(p.Warnings) > 0 {
		t.Errorf("warnings %v", p.Warnings)
	}
}

func TestSettingsOfHostsThatNobodyAskedForAreReported(t *testing.T) {
	a, b := machine(0, 2, nvswitch), machine(1, 2, nvswitch)
	a.Environ = map[string]string{"NCCL_BUFFSIZE": "4M", "NCCL_PSK": facts.Hidden}
	b.NCCLFiles = []facts.NCCLFile{{Path: "/etc/nccl.conf", Values: map[string]string{"NCCL_DEBUG": "WARN"}}}
	p := mustMake(t, with(t, 2), a, b)
	warnings := inWords(p.Warnings)
	mustHold(t, warnings, "m0: NCCL_BUFFSIZE=4M is set by the host's environment, not by the job file", "m1: NCCL_DEBUG=WARN is set by /etc/nccl.conf", "NCCL_PSK=(hidden)")
	if !strings.Contains(warnings, "4") {
		t.Errorf("what NCCL makes of 4M is not said: %s", warnings)
	}
}

func TestWhatIsTheSameOnAllHostsIsSaidOnce(t *testing.T) {
	a, b := machine(0, 4, pcie), machine(1, 4, pcie)
	p := mustMake(t, with(t, 2, "nccl { p2p_level = \"NVL\" }"), a, b)
	n := 0
	for _, w := range p.Warnings {
		if strings.HasPrefix(w.Code, "nccl_p2p") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("said %d times: %v", n, p.Warnings)
	}
}

func TestTheAllocatorIsToldUnderTheNameThatItsVersionReads(t *testing.T) {
	p := mustMake(t, with(t, 1, "allocator { max_split_size = \"128MiB\" }"), machine(0, 2, nvswitch))
	e := env(t, p, 0, ran("2.4.0+cu121", ""))
	if got := e["PYTORCH_CUDA_ALLOC_CONF"]; got != "max_split_size_mb:128" {
		t.Errorf("PYTORCH_CUDA_ALLOC_CONF=%q", got)
	}
}

func TestTheUsersOwnAllocatorStringIsMergedKeyByKey(t *testing.T) {
	j := with(t, 1, "allocator {\n  max_split_size = \"128MiB\"\n  expandable_segments = false\n}",
		"env = { PYTORCH_CUDA_ALLOC_CONF = \"max_split_size_mb:64\" }")
	p := mustMake(t, j, machine(0, 2, nvswitch))
	m := ran("2.4.0+cu121", "")
	m.Environ = []map[string]string{{"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8"}}
	got := env(t, p, 0, m)["PYTORCH_CUDA_ALLOC_CONF"]
	mustHold(t, got, "max_split_size_mb:64")
	if strings.Contains(got, "128") {
		t.Errorf("the block wins over the user's own: %s", got)
	}
	mustHold(t, fmt.Sprint(lint.Libraries.Judge(&rule.Input{Plan: p, Meeting: m})), "max_split_size")
}
