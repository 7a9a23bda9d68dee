//go:build linux

package torchtest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/memory"
)

// held prints, for models of 2^20 parameters, the bytes that torch keeps after two steps
// under DDP: of parameters, gradients, the optimizer's state, and DDP's buckets.
const held = `
import json
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")


def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


for name, dtype, make in [
    ("adamw", "fp32", torch.optim.AdamW),
    ("adamw", "bf16", torch.optim.AdamW),
    ("sgd", "fp32", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("sgd_momentum", "fp32", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ("adafactor", "fp32", torch.optim.Adafactor),
]:
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)])
    model = model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype])
    ddp = DistributedDataParallel(model)
    optimizer = make(model.parameters())
    for _ in range(2):
        ddp(torch.ones(2, 512, dtype=model[0].weight.dtype)).sum().backward()
        optimizer.step()
    state = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.numel() > 1]
    if dist.get_rank() == 0:
        print("held", json.dumps({
            "Optimizer": name, "DType": dtype, "Parameters": size(model.parameters()),
            "Gradients": size(p.grad for p in model.parameters()), "State": size(state),
            "Buckets": int(ddp._get_ddp_logging_data()["bucket_sizes"]),
        }), flush=True)
dist.destroy_process_group()
`

// TestTheEstimateOfMemoryCountsWhatTorchKeeps: what is estimated for parameters, gradients,
// state and buckets is what torch has, to the byte; Adafactor's sums, which are counted as
// nothing, are under 1 % of the parameters.
func TestTheEstimateOfMemoryCountsWhatTorchKeeps(t *testing.T) {
	t.Parallel()
	c := runProgram(t, t.TempDir(), held, 2, "").exits(0)
	found := 0
	for line := range strings.Lines(c.stdout.String()) {
		_, text, is := strings.Cut(line, "| held ")
		if !is {
			continue
		}
		found++
		var kept struct {
			Optimizer, DType                      string
			Parameters, Gradients, State, Buckets uint64
		}
		if err := json.Unmarshal([]byte(text), &kept); err != nil {
			t.Fatal(err)
		}
		none := false
		e, err := memory.Make(memory.Model{Parameters: 1 << 20, Trainable: 1 << 20, DType: kept.DType, MasterWeights: &none,
			Optimizer: kept.Optimizer, Strategy: memory.DDP}, memory.Layout{World: 2})
		if err != nil {
			t.Fatal(err)
		}
		p := e.Stages[0]
		got, want := []uint64{p.Parameters, p.Gradients, p.Gathered}, []uint64{kept.Parameters, kept.Gradients, kept.Buckets}
		off := math.Abs(float64(p.Optimizer) - float64(kept.State))
		if fmt.Sprint(got) != fmt.Sprint(want) || off > 0 && kept.Optimizer != "adafactor" || off > float64(kept.Parameters)/100 {
			t.Errorf("%s in %s: estimated %v and a state of %d, torch keeps %+v", kept.Optimizer, kept.DType, got, p.Optimizer, kept)
		}
	}
	if found != 5 {
		t.Errorf("%d models have told what they keep\n%s", found, c.all())
	}
}
