package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/check/codes"
)

func checkOf(t *testing.T, block string) (Check, string) {
	t.Helper()
	src := Source{Filename: "job.hcl", Text: []byte("job \"j\" {\n  command = [\"x\"]\n  hosts \"local\" {}\n" + block + "\n}\n")}
	job, diags := src.Evaluate()
	if job == nil {
		return Check{}, printed(src, diags)
	}
	return job.Check, printed(src, diags)
}

func TestWithoutACheckBlockEverythingIsToldAndNothingStopped(t *testing.T) {
	c, _ := checkOf(t, "")
	if len(c.Ignore) > 0 || len(c.Severity) > 0 || c.WrongGPU != WrongGPUWarn || !c.AfterStart {
		t.Errorf("%+v", c)
	}
	if c, _ := checkOf(t, "check {\n after_start = false\n}"); c.AfterStart {
		t.Error("after_start = false is not heeded")
	}
}

func TestEveryCodeCanBeIgnoredAndGivenASeverity(t *testing.T) {
	for _, name := range codes.Names() {
		c, said := checkOf(t, fmt.Sprintf("check {\n ignore = [%q]\n}", name))
		if said != "" || len(c.Ignore) != 1 {
			t.Errorf("%s: %s", name, said)
		}
		for _, s := range codes.Severities {
			if c, said := checkOf(t, fmt.Sprintf("check {\n severity = { %s = %q }\n}", name, s)); said != "" || c.Severity[name] != s {
				t.Errorf("%s = %s: %s", name, s, said)
			}
		}
	}
}

func TestASlipInACheckBlockIsMetWithAdvice(t *testing.T) {
	for block, want := range map[string]string{
		`ignore = ["nvlink_down"]`:                    `Did you mean "nvlinks_down"?`,
		`severity = { throttled = "error" }`:          `Did you mean "fail"?`,
		`severity = { throttled = "wran" }`:           `Did you mean "warn"?`,
		`severity = { throttled = "off" }`:            `Write ignore = ["throttled"].`,
		`wrong_gpu = "stopp"`:                         `Did you mean "stop"?`,
		`ignore = "throttled"`:                        `a list of codes such as ["pcie_narrow"]`,
		`severity = "warn"`:                           `write { pcie_narrow = "fail" }`,
		"ignore_codes = [\"throttled\"]":              "It takes the arguments after_start, ignore, severity, wrong_gpu.",
		`ignore = [for c in ["throtled"] : c]`:        `Did you mean "throttled"?`,
		`severity = merge({ throtled = "warn" }, {})`: `Did you mean "throttled"?`,
	} {
		if _, said := checkOf(t, "check {\n "+block+"\n}"); !strings.Contains(strings.Join(strings.Fields(said), " "), want) {
			t.Errorf("%s gives\n%s\nwant %s", block, said, want)
		}
	}
}
