package plans

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/view/terminal"
	"github.com/muster-dev/muster/launcher/view/viewtest"
)

const lora70B = `memory {
    parameters       = "70B"
    trainable        = 0.003
    activations      = "6GiB"
    micro_batch_size = 4
`

// In the table stand what each rank needs of its GPU and what that has; below, what would
// make it fit.
func TestWhatRanksNeedOfMemoryAsPeopleReadIt(t *testing.T) {
	for name, test := range map[string]struct{ ranks, block string }{
		"memory-ddp":      {"devices = [0, 1]", lora70B + "}"},
		"memory-fsdp":     {"", lora70B + "    strategy = \"fsdp\"\n}"},
		"memory-offload":  {"devices = [0, 1]", "memory {\n parameters = \"20B\"\n activations = \"4GiB\"\n strategy = \"zero2\"\n cpu_offload = true\n}"},
		"memory-together": {"devices = [0, 1, 2, 3]", "memory {\n parameters = \"30B\"\n activations = \"40GiB\"\n}"},
		"memory-pipeline": {"devices = [0, 1, 2, 3]\ngroups = { pipeline = 4, tensor = 2 }", `memory {
    parameters             = "30B"
    strategy               = "zero1"
    activations            = "16GiB"
    first_stage_extra      = "600M"
    last_stage_extra       = "600M"
    last_stage_activations = "3GiB"
}`},
		"memory-cpu":    {"per_host = 2\ndevices = \"none\"", "memory { parameters = \"1B\" }"},
		"memory-shared": {"per_host = 4\ndevices = [0]\nshared = true\nbackend = \"gloo\"", "memory { parameters = \"1B\" }"},
	} {
		viewtest.Compare(t, "plan/"+name+".txt", printedBy(t, func(s *terminal.Screen) {
			if err := Plan(s, planWith(t, test.ranks, test.block, twoMachines())); err != nil {
				t.Fatal(err)
			}
		}))
	}
}

func TestWhatRanksNeedOfMemoryIsAContractInJSON(t *testing.T) {
	var out bytes.Buffer
	p := planWith(t, "devices = [0, 1]", lora70B+"}", twoMachines())
	if err := terminal.WriteJSON(&out, memoryOf(p)); err != nil {
		t.Fatal(err)
	}
	viewtest.Compare(t, "plan/memory.json", out.Bytes())
	out.Reset()
	if err := PlanJSON(&out, p); err != nil || !strings.Contains(out.String(), `"memory": {`) {
		t.Errorf("%v: the plan has no memory in it", err)
	}
}

func TestAPlanThatWillNotFitIsWarnedOf(t *testing.T) {
	text := string(printedBy(t, func(s *terminal.Screen) { _ = Plan(s, planWith(t, "", lora70B+"}", twoMachines())) }))
	if !strings.Contains(text, ": memory is estimated not to fit: ") {
		t.Errorf("it says:\n%s", text)
	}
}
