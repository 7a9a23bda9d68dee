package progress

import (
	"strings"
	"testing"
)

func at(epoch, step int) Mark { return Mark{Epoch: epoch, Step: step} }

func TestUsualFormsOfProgressAreRead(t *testing.T) {
	for line, want := range map[string]Mark{
		"step 12/500 loss 2.31":                             at(-1, 12),
		"Step: 12":                                          at(-1, 12),
		"[Step 00012] loss=1.2":                             at(-1, 12),
		"global_step=1200 lr=3e-4":                          at(-1, 1200),
		`{"step": 12, "loss": 2.5, "max_steps": 100}`:       at(-1, 12),
		"{'loss': 2.1, 'epoch': 0.03, 'step': 40}":          at(0, 40),
		" iteration      100/  500000 | consumed samples: ": at(-1, 100),
		"iter 7: loss 3.1, time 12ms":                       at(-1, 7),
		"Epoch [3/10], Step [100/600], Loss: 0.2":           at(3, 100),
		"Epoch: [0]  [  10/1000]  eta: 0:01:02":             at(0, 10),
		"Epoch 4 done":                                      at(4, -1),
		"Epoch 0:   6%|##    | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]": at(0, 32040),
		" 12%|#2        | 120/1000 [00:12<01:30,  9.5it/s]":                          at(-1, 120),
		"2026-01-01 10:00:00,1 - trainer - INFO - step=33":                           at(-1, 33),
	} {
		if got, ok := (Pattern{}).Read(line); !ok || got != want {
			t.Errorf("%q: %v %v, want %v", line, got, ok, want)
		}
	}
}

func TestOtherNumbersAreNoProgress(t *testing.T) {
	for _, line := range []string{
		"max_steps=1000", "max step 1000", "total step: 1000", "steps per epoch: 500", "num_epochs = 3", "val step 3/10",
		"Loading checkpoint shards: 50%|#####     | 2/4 [00:01<00:01,  1.9it/s]",
		"model.safetensors:  12%|#2  | 120M/1.00G [00:12<01:30, 9.5MB/s]",
		"stepping stone", "loss 2.3 at 12:30", "", "epoch", "File \"train.py\", line 12, in training_step",
	} {
		if m, ok := (Pattern{}).Read(line); ok {
			t.Errorf("%q is read as %v", line, m)
		}
	}
}

func TestAnOwnPatternIsTheOnlyOne(t *testing.T) {
	p, err := Compile(`batch #([0-9,]+)`)
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := p.Read("batch #1,204 of step 7"); !ok || m.Step != 1204 {
		t.Errorf("got %v %v", m, ok)
	}
	if m, ok := p.Read("step 7"); ok {
		t.Errorf("got %v", m)
	}
	for _, bad := range []string{"step (", "step [0-9]+", "(a)(b)", "(.*)"} {
		if _, err := Compile(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestACounterNeverGoesBack(t *testing.T) {
	c := NewCounter(Pattern{})
	for _, step := range []struct {
		line    string
		further bool
	}{
		{"epoch 0", true}, {"step 1", true}, {"step 2", true}, {"step 1", false}, {"loss 3", false},
		{"epoch 1 step 1", true}, {"epoch 0 step 9", false}, {"step 2", false}, {"epoch 1 step 2", true},
	} {
		if got := c.Line(step.line); got != step.further {
			t.Errorf("%q: %v, furthest %v", step.line, got, c.Furthest())
		}
	}
	if c.First() != (at(0, -1)) || c.Furthest() != (at(1, 2)) || c.Furthest().String() != "epoch 1, step 2" {
		t.Errorf("from %v to %v", c.First(), c.Furthest())
	}
}

func FuzzRead(f *testing.F) {
	f.Add("step 1", "step ([0-9]+)")
	f.Add(strings.Repeat("step ", 1000), "(x)")
	f.Add("6%|"+strings.Repeat("#", 3000)+"| 1/2 [", "([0-9])")
	f.Fuzz(func(t *testing.T, line, pattern string) {
		p, err := Compile(pattern)
		if err != nil {
			p = Pattern{}
		}
		c := NewCounter(p)
		further := c.Line(line)
		if further != c.Furthest().Known() || c.Line(line) {
			t.Errorf("%q: %v", line, c.Furthest())
		}
	})
}
