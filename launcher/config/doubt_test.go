package config

import (
	"fmt"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// What a check block says of a code holds where the job file itself is what it is about.
func TestDoubtsAboutValuesAreToldAsTheCheckBlockWants(t *testing.T) {
	for policy, want := range map[string]hcl.DiagnosticSeverity{
		"": hcl.DiagWarning,
		`severity = { nccl_number = "fail", allocator_unknown_key = "fail" }`: hcl.DiagError,
		`ignore = ["nccl_number", "allocator_unknown_key"]`:                   hcl.DiagInvalid,
	} {
		for _, values := range []string{
			`env = { NCCL_BUFFSIZE = "4M" }`,
			`env = { PYTORCH_CUDA_ALLOC_CONF = "max_split_siz_mb:10" }`,
		} {
			src := Source{Filename: "job.hcl", Text: fmt.Appendf(nil, "job \"j\" {\n  command = [\"true\"]\n  hosts \"local\" {}\n  %s\n  check {\n    %s\n  }\n}", values, policy)}
			_, diags := src.Evaluate()
			got := hcl.DiagInvalid
			for _, d := range diags {
				got = d.Severity
			}
			if len(diags) > 1 || got != want || len(diags) == 1 && diags[0].Subject.Start.Line != 4 {
				t.Errorf("%s with %q: %s", values, policy, printed(src, diags))
			}
		}
	}
}
