//go:build linux

package torchtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	world = 4
	steps = 16
	// train is the script of both examples.
	train = "examples/ddp-cpu/train.py"
	// sameLoss is by how much two runs of one training may differ.
	sameLoss = 1e-6
)

// mayDiffer are all variables in which a worker of muster differs from one of torchrun,
// and why.
var mayDiffer = map[string]string{
	"MASTER_ADDR":                    "muster gives an address, which every host understands alike; torchrun a name",
	"MASTER_PORT":                    "a free port, another one each time",
	"TORCHELASTIC_RUN_ID":            "the id of the run",
	"TORCHELASTIC_ERROR_FILE":        "lies where each launcher keeps a run's files",
	"TORCHELASTIC_USE_AGENT_STORE":   "torchrun's agent hosts the workers' store, with muster rank 0 does",
	"TORCHELASTIC_SIGNALS_TO_HANDLE": "torchrun tells its agent what to catch, and workers happen to inherit it",
	"PYTHONUNBUFFERED":               "muster starts the command as it stands; torchrun starts python -u",
	"CUDA_VISIBLE_DEVICES":           "the job asks for no device, and gets none to see",
	"MUSTER_RUN":                     "muster's own",
	"MUSTER_LOCAL_RANK":              "muster's own",
	"MUSTER_RANK":                    "muster's own",
	"MUSTER_WORLD_SIZE":              "muster's own",
	"MUSTER_ATTEMPT":                 "muster's own",
	"SSH_CONNECTION":                 "belongs to the login that the launcher was started from, not to the workers",
	"SHLVL":                          "belongs to the shell that the launcher was started from",
}

// trained is a training that ran to its end.
type trained struct {
	losses   map[int]float64
	environs []map[string]string // by rank
}

// baseEnv is what both launchers are started with: a small session, by SSH. ENVIRON_DIR
// takes what the workers see of it.
func baseEnv(t testing.TB, environs string) []string {
	t.Helper()
	site, err := filepath.Abs("testdata/environ")
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PWD=" + tree(), "LANG=C.UTF-8",
		"SSH_CONNECTION=192.0.2.1 50000 192.0.2.2 22", "SHLVL=1", "ODD= a=b\nc\"$HOME ",
		"OMP_NUM_THREADS=1", "PYTHONPATH=" + site, "ENVIRON_DIR=" + environs,
	}
}

// byTorchrun is the training under torchrun, what others are held against.
var byTorchrun struct {
	once sync.Once
	trained
}

func torchrun(t *testing.T) trained {
	t.Helper()
	byTorchrun.once.Do(func() {
		dir := t.TempDir()
		needPrograms(t)
		c := start(t, baseEnv(t, dir), programs.python, "-m", "torch.distributed.run", "--standalone", fmt.Sprint("--nproc-per-node=", world),
			train, "--steps", fmt.Sprint(steps), "--checkpoint-dir", filepath.Join(dir, "checkpoints"))
		byTorchrun.trained = trained{c.exits(0).losses(), readEnvirons(t, dir)}
	})
	if byTorchrun.losses == nil {
		t.Fatal("torchrun failed in an earlier test")
	}
	return byTorchrun.trained
}

// readEnvirons reads what testdata/environ has left.
func readEnvirons(t testing.TB, dir string) []map[string]string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	environs := make([]map[string]string, len(files))
	for rank := range environs {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.json", rank)))
		if err == nil {
			err = json.Unmarshal(text, &environs[rank])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return environs
}

func TestAScriptTrainsUnderMusterAsUnderTorchrun(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	env := append(baseEnv(t, dir), "XDG_STATE_HOME="+dir)
	c := start(t, env, programs.muster, "run", "examples/ddp-local.hcl", "-var", "python="+programs.python,
		"-var", fmt.Sprint("steps=", steps), "-var", "checkpoint_dir="+filepath.Join(dir, "checkpoints"))
	c.exits(0).says(fmt.Sprintf("starting with %d ranks", world))
	want, got := torchrun(t), trained{c.losses(), readEnvirons(t, dir)}
	if len(got.losses) != steps {
		t.Errorf("%d steps were trained, want %d", len(got.losses), steps)
	}
	sameLosses(t, got.losses, want.losses)
	if len(got.environs) != world || len(want.environs) != world {
		t.Fatalf("%d ranks under muster, %d under torchrun, want %d", len(got.environs), len(want.environs), world)
	}
	for rank := range world {
		sameEnvirons(t, rank, got.environs[rank], want.environs[rank])
	}
}

func sameLosses(t *testing.T, got, want map[int]float64) {
	t.Helper()
	for _, step := range slices.Sorted(maps.Keys(got)) {
		loss, known := want[step]
		if known && math.Abs(got[step]-loss) > sameLoss {
			t.Errorf("step %d has loss %v, under torchrun %v", step, got[step], loss)
		}
	}
}

// sameEnvirons wants a difference in each variable of mayDiffer and in no other.
func sameEnvirons(t *testing.T, rank int, muster, torchrun map[string]string) {
	t.Helper()
	delete(muster, "XDG_STATE_HOME") // given to muster only
	for _, environ := range []map[string]string{muster, torchrun} {
		delete(environ, "ENVIRON_DIR")
		for name, value := range map[string]any{
			"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1,
			"ROLE_RANK": rank, "ROLE_WORLD_SIZE": world, "ROLE_NAME": "default", "TORCHELASTIC_RESTART_COUNT": 0,
			"TORCHELASTIC_MAX_RESTARTS": 0, "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "OMP_NUM_THREADS": 1,
		} {
			if environ[name] != fmt.Sprint(value) {
				t.Errorf("rank %d has %s=%q, want %v", rank, name, environ[name], value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(union(muster, torchrun, mayDiffer))) {
		ours, inOurs := muster[name]
		theirs, inTheirs := torchrun[name]
		differs := ours != theirs || inOurs != inTheirs
		switch _, listed := mayDiffer[name]; {
		case differs && !listed:
			t.Errorf("rank %d has %s=%q (there: %v) under muster, %q (there: %v) under torchrun, which is not listed", rank, name, ours, inOurs, theirs, inTheirs)
		case !differs && listed:
			t.Errorf("rank %d has %s=%q under both, but it is listed as different: %s", rank, name, ours, mayDiffer[name])
		}
	}
	if muster["TORCHELASTIC_USE_AGENT_STORE"] != "False" || !strings.HasSuffix(muster["TORCHELASTIC_ERROR_FILE"], ".json") {
		t.Errorf("rank %d: TORCHELASTIC_USE_AGENT_STORE=%q TORCHELASTIC_ERROR_FILE=%q", rank,
			muster["TORCHELASTIC_USE_AGENT_STORE"], muster["TORCHELASTIC_ERROR_FILE"])
	}
}

func union(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}
