package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const twoRanks = `{"version":1,"hosts":[{"visibility":"host","device_names":"uuid"}],"warnings":[],"ranks":[
  {"rank":0,"gpu":{"index":1,"uuid":"GPU-b","pci":"0000:1b:00.0"},"cpus":[0,1,2,8],"env":{"CUDA_VISIBLE_DEVICES":{"value":"GPU-b,GPU-a"},"LOCAL_RANK":{"value":"0"}}},
  {"rank":1,"gpu":{"index":0,"uuid":"GPU-a","pci":"0000:1a:00.0"},"cpus":null,"env":{"CUDA_VISIBLE_DEVICES":{"value":"GPU-b,GPU-a"},"LOCAL_RANK":{"value":"1"}}}]}`

// twoWorkers are where that plan has them.
func twoWorkers() []worker {
	return []worker{
		{Rank: "1", LocalRank: "1", PID: 11, Visible: []string{"GPU-b", "GPU-a"}, UUID: "GPU-a", PCI: "0000:1A:00.0", CPUs: "0-15"},
		{Rank: "0", LocalRank: "0", PID: 10, Visible: []string{"GPU-b", "GPU-a"}, UUID: "GPU-b", PCI: "0000:1B:00.0", CPUs: "0-2,8"},
	}
}

func TestRanksElsewhereThanPlannedAreFound(t *testing.T) {
	var p planned
	if err := json.Unmarshal([]byte(twoRanks), &p); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func([]worker) []worker{
		"": func(w []worker) []worker { return w },
		"rank 1 has the GPU b, and a in the plan":      func(w []worker) []worker { w[0].UUID = "GPU-b"; return w },
		"rank 0 has the GPU at 0000:1c:00.0":           func(w []worker) []worker { w[1].PCI = "0000:1C:00.0"; return w },
		"rank 0 has in sight a,b, and b,a in the plan": func(w []worker) []worker { w[1].Visible = []string{"GPU-a", "GPU-b"}; return w },
		"rank 0 has LOCAL_RANK 1, and 0 in the plan":   func(w []worker) []worker { w[1].LocalRank = "1"; return w },
		"rank 0 has CPUs 0-3, and 0-2,8 in the plan":   func(w []worker) []worker { w[1].CPUs = "0-3"; return w },
		"no worker says that it is rank 0":             func(w []worker) []worker { return w[:1] },
		"two workers say that they are rank 1":         func(w []worker) []worker { w[1].Rank = "1"; return w },
	} {
		err := samePlaces(&p, change(twoWorkers()))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWorkersAreSeenInSeveralWays(t *testing.T) {
	before := []row{{UUID: "GPU-a", Used: 4}, {UUID: "GPU-b", Used: 4}}
	taken := []row{{UUID: "GPU-a", Used: 600}, {UUID: "GPU-b", Used: 600}}
	for name, test := range map[string]struct {
		apps []app
		now  []row
		how  string
		err  string
	}{
		"by pid":                  {apps: []app{{10, "GPU-b", ""}, {11, "GPU-a", ""}}, how: byPID},
		"by pid on another GPU":   {apps: []app{{10, "GPU-a", ""}, {11, "GPU-a", ""}}, err: "shows its pid 10 on GPU-a"},
		"one by pid":              {apps: []app{{10, "GPU-b", ""}}, err: "1 of 2 workers"},
		"by other pids":           {apps: []app{{910, "GPU-b", ""}, {911, "GPU-a", ""}}, how: byNumber},
		"by other pids elsewhere": {apps: []app{{910, "GPU-b", ""}, {911, "GPU-b", ""}}, err: "new processes there"},
		"by memory":               {now: taken, how: byMemory},
		"not at all":              {now: before, err: "went from 4 to 4 MiB"},
	} {
		how, err := seen(test.apps, before, test.now, twoWorkers())
		if test.err == "" && (err != nil || how != test.how) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: %q, %v", name, how, err)
		}
	}
}

func TestLinesOfWorkersAreRead(t *testing.T) {
	if w, is := readWorker(`localhost:3| {"rank":"3","pid":12,"uuid":"GPU-a","visible":["GPU-a"]}`); !is || w.PID != 12 || w.Rank != "3" {
		t.Errorf("%+v", w)
	}
	for _, line := range []string{"", "localhost:0| hello {world}", "{}", `localhost:0| {"loss": 3}`} {
		if w, is := readWorker(line); is {
			t.Errorf("%q is taken for %+v", line, w)
		}
	}
}

func TestBeginningsOfUUIDsTellGPUsApart(t *testing.T) {
	all := []row{{UUID: "GPU-8932f937-1"}, {UUID: "GPU-8932f937-2"}, {UUID: "GPU-12345678-1"}}
	for i, want := range []string{"GPU-8932f937-1", "GPU-8932f937-2", "GPU-12345678"} {
		if got := prefix(all, all[i]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTextsAreQuotedAsHCLHasThem(t *testing.T) {
	got := jobText([]string{`/a "b"/${c}`, "%{d}"}, []string{"per_host = 2"}, "  more = 1\n")
	for _, want := range []string{`command = ["/a \"b\"/$${c}", "%%{d}"]`, "ranks {\n    per_host = 2\n  }\n  more = 1\n}"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
}
