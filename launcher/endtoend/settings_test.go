//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// unlike are hosts of one kind that were set up by different people: no two have the same
// name of their interface, and what their logins set differs too.
var unlike room

// unlikeHosts are in the order in which job files list them; that of their addresses is
// another.
var unlikeHosts = []string{"left", "middle", "right"}

var unlikeNICs = map[string]string{"left": "eno1", "middle": "enp65s0f0", "right": "eth0"}

func theUnlike(t *testing.T) *testbed.Bed {
	t.Helper()
	looks := onThisMachine(t, gpus.L40S())
	looks.GPUs, looks.NICs = looks.GPUs[:2], nil
	return unlike.borrow(t, testbed.Options{
		Hosts: 3, Names: []string{"right", "left", "middle"}, Docker0: true, SecondNet: true,
		Each: func(i int, h *testbed.HostOptions) {
			h.NIC, h.GPUs = unlikeNICs[h.Name], looks.OwnCards(i)
			if h.Name == "left" {
				h.SSHDConfig = []string{"SetEnv LD_LIBRARY_PATH=/opt/left/lib NCCL_BUFFSIZE=4M PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,garbage_collection_threshold:0.6,roundup_power2_divisions:4"}
			}
		},
	})
}

// dumping is a script that leaves each rank's environment for environOf.
func (u *user) dumping() string { return fmt.Sprintf(dumpSelf, u.dir) }

func TestVariablesOfHostsAreAddedToWhereEachRankIs(t *testing.T) {
	u := newUser(t, theUnlike(t))
	u.runJob(job{script: u.dumping(), hosts: unlikeHosts, more: machinesOwn + `
  env = {
    LD_LIBRARY_PATH = append("/opt/cuda/lib", env_of_host("LD_LIBRARY_PATH"))
    MANPATH         = append(env_of_host("NEVER_SET"), "/opt/man")
    OF_SETUP        = "${env_of_host("FROM_SETUP")}!"
    CARD            = gpu.uuid
    WHO             = "${host.name}-${rank.global}-${rank.local}"
  }` + setup("[ $(hostname) != right ] || export LD_LIBRARY_PATH=/opt/right/lib\nexport FROM_SETUP=$(hostname)")}).exits(0)
	for rank, path := range []string{"/opt/cuda/lib:/opt/left/lib", "/opt/cuda/lib", "/opt/cuda/lib:/opt/right/lib"} {
		got := u.environOf(rank)
		for name, want := range map[string]string{
			"LD_LIBRARY_PATH": path, "MANPATH": "/opt/man", "OF_SETUP": unlikeHosts[rank] + "!", "WHO": fmt.Sprintf("%s-%d-0", unlikeHosts[rank], rank),
		} {
			if got[name] != want {
				t.Errorf("rank %d has %s=%q, want %q", rank, name, got[name], want)
			}
		}
		if got["CARD"] == "" || got["CARD"] != got["MUSTER_DEVICE"] {
			t.Errorf("rank %d has gpu.uuid %q and MUSTER_DEVICE %q", rank, got["CARD"], got["MUSTER_DEVICE"])
		}
	}
}

// lineOf is the number of the line in a file of the user's that begins with a text.
func (u *user) lineOf(file, begins string) int {
	u.t.Helper()
	for i, line := range strings.Split(u.read(file), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), begins) {
			return i + 1
		}
	}
	u.t.Fatalf("%s has no line that begins with %s", file, begins)
	return 0
}

func TestSettingsOfLibrariesReachWorkersInTheFormThatTheyRead(t *testing.T) {
	u := newUser(t, theUnlike(t))
	path := u.write(job{script: u.dumping(), hosts: unlikeHosts[:2], more: machinesOwn + `
  nccl {
    buffer_size = "8MiB"
    p2p_level   = "PHB"
    p2p_disable = false
    debug       = "WARN"
  }
  allocator {
    max_split_size = "128MiB"
  }
  env = {
    NCCL_P2P_LEVEL          = "SYS"
    PYTORCH_CUDA_ALLOC_CONF = "garbage_collection_threshold:0.9"
  }`})
	u.run("run", path).exits(0)
	for rank := range 2 {
		got := u.environOf(rank)
		for name, want := range map[string]string{
			"NCCL_BUFFSIZE":    "8388608", // NCCL takes 8MiB for 8, and left's own 4M for 4
			"NCCL_P2P_LEVEL":   "SYS",     // env wins
			"NCCL_P2P_DISABLE": "0",       // and true would be 0
			"NCCL_DEBUG":       "WARN",
		} {
			if got[name] != want {
				t.Errorf("rank %d has %s=%q, want %q", rank, name, got[name], want)
			}
		}
		// Key by key: env's over the block's over those of left itself.
		want := []string{"garbage_collection_threshold:0.9", "max_split_size_mb:128"}
		if rank == 0 {
			want = append(want, "roundup_power2_divisions:4")
		}
		keys := strings.Split(got["PYTORCH_CUDA_ALLOC_CONF"], ",")
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("rank %d has PYTORCH_CUDA_ALLOC_CONF=%q, want %q", rank, got["PYTORCH_CUDA_ALLOC_CONF"], want)
		}
		if alloc := got["PYTORCH_ALLOC_CONF"]; alloc != got["PYTORCH_CUDA_ALLOC_CONF"] { // torch is not found, so that it may read either
			t.Errorf("rank %d has PYTORCH_ALLOC_CONF=%q", rank, alloc)
		}
	}

	var env struct {
		Env map[string]struct{ Value, Source string }
	}
	if err := json.Unmarshal([]byte(u.run("plan", path, "--env", "1", "--json").exits(0).stdout), &env); err != nil {
		t.Fatal(err)
	}
	at := func(begins string) string { return fmt.Sprintf("t.hcl:%d", u.lineOf("t.hcl", begins)) }
	for name, want := range map[string]struct{ value, source string }{
		"NCCL_BUFFSIZE":  {"8388608", at("buffer_size")},
		"NCCL_P2P_LEVEL": {"SYS", at("NCCL_P2P_LEVEL")},
		"WORLD_SIZE":     {"2", "torchrun's contract"},
		"HOME":           {"/root", "the environment of middle"},
	} {
		if got := env.Env[name]; got.Value != want.value || !strings.HasSuffix(got.Source, want.source) {
			t.Errorf("plan --env shows %s=%q of %q, want %q of %q", name, got.Value, got.Source, want.value, want.source)
		}
	}
	for _, source := range []string{at("max_split_size"), at("PYTORCH_CUDA_ALLOC_CONF")} {
		if got := env.Env["PYTORCH_CUDA_ALLOC_CONF"].Source; !strings.Contains(got, source) {
			t.Errorf("PYTORCH_CUDA_ALLOC_CONF is said to come from %q, want %s too", got, source)
		}
	}
	u.run("plan", path, "--env", "1").exits(0).prints("NCCL_BUFFSIZE=8388608  # "+env.Env["NCCL_BUFFSIZE"].Source+"\n", "MASTER_PORT=(known at the start)")
}

func TestWhatHostsSetForNCCLByThemselvesIsSaidOnce(t *testing.T) {
	bed := theUnlike(t)
	u := newUser(t, bed)
	on(t, bed.Host("middle"), "sh", "-c", "printf '# of the site\nNCCL_DEBUG=info\n' >/etc/nccl.conf")
	t.Cleanup(func() { on(t, bed.Host("middle"), "rm", "/etc/nccl.conf") })
	path := u.write(job{script: u.dumping(), hosts: unlikeHosts, more: machinesOwn})
	r := u.run("run", path).exits(0)
	for _, text := range []string{"NCCL_BUFFSIZE=4M is set by the host's environment, not by the job file", "NCCL_DEBUG=info is set by /etc/nccl.conf, not by the job file"} {
		if n := strings.Count(r.stderr, text); n != 1 {
			t.Errorf("%q is said %d times:\n%s", text, n, r.stderr)
		}
	}
	r.says("left: NCCL_BUFFSIZE=4M", "takes this as 4 ", "middle: NCCL_DEBUG=info")
	if got := u.environOf(0)["NCCL_BUFFSIZE"]; got != "4M" {
		t.Errorf("the host's own NCCL_BUFFSIZE has become %q", got)
	}
	// Who knows of it need not hear of it, and may want no job to start with it.
	known := func(block string) string {
		return u.write(job{script: "true", hosts: unlikeHosts, more: "\n" + block})
	}
	quiet := strings.Replace(machinesOwn, "ignore = [", `ignore = ["nccl_found", "nccl_number", `, 1)
	u.run("run", known(quiet)).exits(0).saysNothingOf("NCCL_BUFFSIZE", "NCCL_DEBUG")
	strict := strings.Replace(machinesOwn, "ignore = [", "severity = { nccl_found = \"fail\" }\nignore = [", 1)
	u.run("run", known(strings.NewReplacer("check { ", "check {\n", "] }", "]\n}").Replace(strict))).exits(75).says("NCCL_DEBUG=info is set by /etc/nccl.conf")
	// What the job file sets is not the host's any more.
	u.run("plan", u.write(job{script: "true", hosts: unlikeHosts, more: machinesOwn + "\nnccl {\n buffer_size = \"4MiB\"\n debug = \"INFO\"\n }"})).
		exits(0).saysNothingOf("is set by the host", "is set by /etc").printsNothingOf("is set by the host", "is set by /etc")
}

// printsNothingOf checks that standard output lacks texts.
func (r result) printsNothingOf(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.stdout, text) {
			r.t.Errorf("standard output has %q:\n%s", text, r.stdout)
		}
	}
	return r
}

func TestWhatDiffersBetweenHostsAndRanksIsShown(t *testing.T) {
	u := newUser(t, theUnlike(t))
	path := u.write(job{script: "true", hosts: unlikeHosts, more: `
  env = {
    SAME            = "all"
    SHARD           = rank.global % 2
    LD_LIBRARY_PATH = append("/opt/cuda/lib", env_of_host("LD_LIBRARY_PATH"))
  }`})
	u.run("plan", path, "--diff").exits(0).prints("SHARD", "LD_LIBRARY_PATH", "/opt/cuda/lib:/opt/left/lib").printsNothingOf("SAME", "\n  RANK\n")
	var diff struct {
		Hosts, Ranks []struct {
			What   string
			Values []struct{ Value, Who string }
		}
	}
	if err := json.Unmarshal([]byte(u.run("plan", path, "--diff", "--json").exits(0).stdout), &diff); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, d := range append(diff.Hosts, diff.Ranks...) {
		for _, v := range d.Values {
			found[d.What] = append(found[d.What], v.Value+" "+v.Who)
		}
	}
	if got := fmt.Sprint(found["SHARD"]); !strings.Contains(got, "0 ranks 0,2") || !strings.Contains(got, "1 ranks 1") {
		t.Errorf("SHARD differs in %s; all: %v", got, found)
	}
	if got := found["LD_LIBRARY_PATH"]; len(got) != 2 {
		t.Errorf("LD_LIBRARY_PATH differs in %q", got)
	}
}

// torchOf makes an environment of Python which has a torch of some version, as far as
// files tell it, and returns its interpreter.
func (u *user) torchOf(version string) (python string) {
	u.t.Helper()
	return u.torchWith(version, "2.27.5")
}

// torchWith is the same with a release of NCCL.
func (u *user) torchWith(version, nccl string) (python string) {
	u.t.Helper()
	venv := "venv-" + version + "-" + nccl
	u.file(venv+"/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.4\n")
	packages := venv + "/lib/python3.11/site-packages/"
	u.file(packages+"torch/version.py", fmt.Sprintf("from typing import Optional\n__version__ = '%s+cu128'\ncuda: Optional[str] = '12.8'\n", version))
	u.file(packages+"nvidia_nccl_cu12-"+nccl+".dist-info/METADATA", "Name: nvidia-nccl-cu12\n")
	python = u.file(venv+"/bin/python", "\x7fELF")
	if err := os.Chmod(python, 0o700); err != nil {
		u.t.Fatal(err)
	}
	return python
}

// sharedJob is a job that takes a part of the first GPU of the machine l40s.
func (u *user) sharedJob(name, python, script string) string {
	u.t.Helper()
	return u.file(name+".hcl", fmt.Sprintf(`job %q {
  command = ["sh", "-c", %q]
  python  = %q
  hosts "ssh" {
    names = ["l40s"]
  }
  ranks {
    devices = [0]
    shared  = true
  }
  allocator {
    memory_fraction = 0.45
  }
  stop { grace = "1s" }
  %s
}
`, name, script, python, machinesOwn))
}

// Training beside another process on one GPU.
func TestTwoJobsShareAGPUWhereThatIsMeantEachWithItsFraction(t *testing.T) {
	u := newUser(t, theMachines(t))
	python := u.torchOf("2.10.0")
	script := "echo $PYTORCH_ALLOC_CONF >" + u.dir + "/$TORCHELASTIC_RUN_ID; exec cudaworker -bytes 8GiB -for 1h"
	first := u.start("run", u.sharedJob("first", python, script))
	first.waitToSay("every rank was seen on its GPU")
	// That somebody is there is good to know, and no fault.
	if c := u.check(0, u.sharedJob("second", python, script)); c.Verdict != "pass" || c.has("gpu_in_use") == nil || c.has("gpu_in_use").Severity != "info" {
		t.Errorf("verdict %s: %+v", c.Verdict, c.Findings)
	}
	second := u.start("run", u.path("second.hcl"))
	second.waitToSay("every rank was seen on its GPU")
	held := holdings(t, u.bed.Host("l40s"))
	if len(held) != 2 || held[0].UUID != held[1].UUID {
		t.Errorf("GPUs are held by %+v", held)
	}
	// Who does not want to share is told who is there.
	u.run("run", u.gpuJob([]string{"l40s"}, "devices = 4", "check { severity = { gpu_in_use = \"fail\" } }")).exits(75).says("GPU 0 is busy", "cudaworker")
	// Nor does one wait at its end for the other's to be gone.
	for _, l := range []*launch{first, second} {
		began := time.Now()
		l.signal(syscall.SIGTERM)
		l.wait().exits(143).saysNothingOf("somebody else", "held by", "warning")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
	}
	for _, name := range []string{"first", "second"} {
		paths, _ := filepath.Glob(u.path(name + "-*"))
		if len(paths) != 1 {
			t.Fatalf("%s has left %q", name, paths)
		}
		if got := u.read(filepath.Base(paths[0])); got != "per_process_memory_fraction:0.45\n" {
			t.Errorf("the allocator of %s is told %q", name, got)
		}
	}

	// An older torch takes no fraction from outside.
	older := u.check(0, u.sharedJob("older", u.torchOf("2.4.1"), script))
	if f := older.has("allocator_no_fraction"); f == nil || !strings.Contains(f.Message, "set_per_process_memory_fraction(0.45)") || f.Severity != "warn" {
		t.Errorf("torch 2.4 has %+v", older.Findings)
	}
	for _, r := range u.planned(u.path("older.hcl")) {
		for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
			if v, set := r.Env[name]; set {
				t.Errorf("torch 2.4, which stops at it, is given %s=%s", name, v.Value)
			}
		}
	}
}
