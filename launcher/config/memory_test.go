package config

import (
	"strings"
	"testing"
)

// To take "zero" for a stage would be a guess that halves what is needed, or worse: what each
// stage shards is told instead, so that whoever knows can write it.
func TestZeROWithoutAStageIsAskedFor(t *testing.T) {
	for _, written := range []string{"zero", "ZeRO", "deepspeed"} {
		text := "job \"j\" {\n  command = [\"true\"]\n  hosts \"local\" {}\n  memory {\n    parameters = \"7B\"\n    strategy = \"" + written + "\"\n  }\n}"
		src := Source{Filename: "job.hcl", Text: []byte(text)}
		_, diags := src.Evaluate()
		if len(diags) != 1 || diags[0].Subject.Start.Line != 6 {
			t.Fatalf("%s: %s", written, printed(src, diags))
		}
		for _, part := range []string{"which stage of ZeRO?", `"zero1" (the optimizer's state is sharded)`, `"zero2" (gradients too)`, `"zero3" (parameters too)`} {
			if !strings.Contains(diags[0].Detail, part) {
				t.Errorf("%s: %q is not in %s", written, part, diags[0].Detail)
			}
		}
	}
}

func TestTorchsNamesOfTypesAreKnown(t *testing.T) {
	for written, want := range map[string]string{"bfloat16": "bf16", "torch.float16": "fp16", "float32": "fp32", "bf16": "bf16"} {
		src := Source{Filename: "job.hcl", Text: []byte("job \"j\" {\n  command = [\"true\"]\n  hosts \"local\" {}\n  memory {\n    parameters = \"7B\"\n    dtype = \"" + written + "\"\n  }\n}")}
		job, diags := src.Evaluate()
		if len(diags) > 0 {
			t.Fatalf("%s: %s", written, printed(src, diags))
		}
		if got := job.Memory.DType; got != want {
			t.Errorf("%s is taken for %s", written, got)
		}
	}
}
