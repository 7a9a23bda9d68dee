package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/muster-dev/muster/plugins/gpu"
)

func TestWhatIsInconsistentIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *gpu.Inventory)
		says   string
	}{
		"consistent":         {func(*gpu.Inventory) {}, ""},
		"no GPUs":            {func(g *gpu.Inventory) { g.GPUs, g.Links = []gpu.GPU{}, nil }, ""},
		"unknown ways":       {func(g *gpu.Inventory) { g.Links = [][]gpu.Link{{"", ""}, {"", ""}} }, ""},
		"lost without uuid":  {func(g *gpu.Inventory) { g.GPUs[0].UUID, g.GPUs[0].State = "", gpu.StateLost }, ""},
		"named by index":     {func(g *gpu.Inventory) { g.GPUs[0].UUID, g.Visibility.Names = "", "index" }, ""},
		"no list":            {func(g *gpu.Inventory) { g.GPUs = nil }, "no list of gpus"},
		"index twice":        {func(g *gpu.Inventory) { g.GPUs[0].Index = 1 }, "index 1 is there twice"},
		"order":              {func(g *gpu.Inventory) { g.GPUs[0].Index = 7 }, "index 1 stands after 7"},
		"negative index":     {func(g *gpu.Inventory) { g.GPUs[0].Index = -1 }, "negative"},
		"uuid twice":         {func(g *gpu.Inventory) { g.GPUs[0].UUID = "GPU-b" }, "indices 0 and 1 have the same uuid"},
		"uuid with a comma":  {func(g *gpu.Inventory) { g.GPUs[0].UUID = "a,b" }, "other signs"},
		"no uuid":            {func(g *gpu.Inventory) { g.GPUs[0].UUID = "" }, "no uuid"},
		"pci of nvidia-smi":  {func(g *gpu.Inventory) { g.GPUs[0].PCI = "00000000:0F:00.0" }, "as in sysfs"},
		"state":              {func(g *gpu.Inventory) { g.GPUs[0].State = "fine" }, `state "fine" is none of ok, lost`},
		"no row":             {func(g *gpu.Inventory) { g.Links = g.Links[:1] }, "links have 1 rows for 2 gpus"},
		"no cell":            {func(g *gpu.Inventory) { g.Links[1] = g.Links[1][:1] }, "links[1] has 1 cells"},
		"other way":          {func(g *gpu.Inventory) { g.Links[0][1] = "XGMI" }, `links[0][1] is "XGMI"`},
		"not itself":         {func(g *gpu.Inventory) { g.Links[0][0] = "NV1" }, `links[0][0] is "NV1"`},
		"variable":           {func(g *gpu.Inventory) { g.Visibility.Variable = "A B" }, "no name of an environment variable"},
		"names":              {func(g *gpu.Inventory) { g.Visibility.Names = "pci" }, "visibility.names"},
		"pid":                {func(g *gpu.Inventory) { g.GPUs[0].Processes = []gpu.Process{{PID: -1}} }, "pid -1"},
		"commands in a name": {func(g *gpu.Inventory) { g.GPUs[0].Name = "A\x1b[2J" }, "control characters"},
		"commands in a why":  {func(g *gpu.Inventory) { g.GPUs[1].Why = map[string]string{"ecc": "\a"} }, "control characters"},
		"many things":        {func(g *gpu.Inventory) { g.GPUs = make([]gpu.GPU, 9) }, "and 15 more"},
	} {
		t.Run(name, func(t *testing.T) {
			g := pair()
			c.change(g)
			err := Check(g)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func FuzzAnswersNeverPanic(f *testing.F) {
	good, _ := json.Marshal(pair())
	f.Add(good)
	f.Add([]byte(`{"gpus":[{"index":1e9}],"links":[[]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := read(Program{Name: "x"}, data, checkInventory); err == nil {
			gpu.Islands(g.Links)
		}
	})
}

func TestWhoStartsAPluginByHandIsTold(t *testing.T) {
	var out, errs bytes.Buffer
	if code := byHand("rocm", prober("good"), []string{"/x"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), `plugin "rocm"`) || out.Len() > 0 {
		t.Errorf("status %d: %s%s", code, &out, &errs)
	}
	errs.Reset()
	if code := byHand("rocm", prober("good"), []string{"/x", "probe"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("status %d: %s", code, &errs)
	}
	if g, err := decode[gpu.Inventory](out.Bytes()); err != nil || len(g.GPUs) != 2 {
		t.Errorf("%v: %s", err, &out)
	}
	if code := byHand("rocm", prober("refuses"), []string{"/x", "probe"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "no driver") {
		t.Errorf("status %d: %s", code, &errs)
	}
	errs.Reset()
	bad := proberFunc(func(context.Context) (*gpu.Inventory, error) { return &gpu.Inventory{}, nil })
	if code := byHand("rocm", bad, []string{"/x", "probe"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "will refuse") {
		t.Errorf("status %d: %s", code, &errs)
	}
}

func TestTheBeginningOfACrashIsKept(t *testing.T) {
	var said tail
	said.Write([]byte("before\npanic: no\nway\n\n"))
	for range 2 * tailLines {
		said.Write([]byte("stack "))
		said.Write([]byte("of it\n"))
	}
	e := Error{Stderr: said.last(), Kind: KindFailed}
	if !strings.Contains(e.Error(), `"panic: no" "way" "stack of it"`) || len(e.Stderr) != tailLines {
		t.Errorf("error %v", &e)
	}
	var same *Error
	if !errors.As(error(&e), &same) {
		t.Error("it is no *Error")
	}
}

func TestLongLinesAreCut(t *testing.T) {
	var said tail
	said.Write(bytes.Repeat([]byte("x"), 1<<20))
	if lines := said.last(); len(lines) != 1 || len(lines[0]) != tailWidth {
		t.Errorf("%d lines", len(lines))
	}
}

func TestSamplesThatMakeNoSenseAreRefused(t *testing.T) {
	p := Program{Name: "played"}
	for name, text := range map[string]string{
		"no list":          `{}`,
		"another state":    `{"gpus":[{"uuid":"GPU-a","state":"fine"}]}`,
		"more than all":    `{"gpus":[{"uuid":"GPU-a","state":"ok","utilization":{"gpu":101}}]}`,
		"no process":       `{"gpus":[{"uuid":"GPU-a","state":"ok","processes":[{"pid":0,"kind":"compute"}]}]}`,
		"seldom":           `{"every_s":7200,"gpus":[]}`,
		"terminal control": `{"gpus":[{"uuid":"\u001b[2J","state":"ok"}]}`,
	} {
		if _, err := read(p, []byte(text), checkSamples); err == nil {
			t.Errorf("%s: %s is taken for samples", name, text)
		}
	}
	if _, err := read(p, []byte(`{"gpus":[{"uuid":"GPU-a","state":"ok","memory":{"used":5}}]}`), checkSamples); err != nil {
		t.Error(err)
	}
}
