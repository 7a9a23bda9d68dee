//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// standInTorch makes what looks like a Python with torch 2.10: for muster, which reads
// files, an environment whose interpreter the first line of a script names; for who runs
// that, a shell, which answers as the scripts here would. What ranks that run tell or do is
// off by lies.
func standInTorch(dir, name, allocator, nccl, capacity string, lies int) (python string, err error) {
	return standInTorchOf("2.27.5", dir, name, allocator, nccl, capacity, lies)
}

// standInTorchOf is standInTorch with an NCCL of another version.
func standInTorchOf(version, dir, name, allocator, nccl, capacity string, lies int) (python string, err error) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		return "", err
	}
	venv, python := filepath.Join(dir, "venv"), filepath.Join(dir, name)
	for path, text := range map[string]string{
		venv + "/bin/python3": string(shell),
		venv + "/pyvenv.cfg":  "home = /usr/bin\nversion = 3.11.4\n",
		venv + "/lib/python3.11/site-packages/torch/version.py":                                    "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\n",
		venv + "/lib/python3.11/site-packages/nvidia_nccl_cu12-" + version + ".dist-info/METADATA": "",
		python: fmt.Sprintf(`#!%[1]s/bin/python3
case $1 in
*/versions.py)
  echo '{"torch": "2.10.0+cu128", "nccl": "%[6]s", "cuda": true, "python": "'$0'"}' ;;
*/allocator.py)
  %[2]s
  cudaworker -for 50ms >/dev/null || exit 1
  echo '{"held": 33554432, "settings": {"PYTORCH_CUDA_ALLOC_CONF": "'$PYTORCH_CUDA_ALLOC_CONF'", "PYTORCH_ALLOC_CONF": "'$PYTORCH_ALLOC_CONF'"}}' ;;
*/nccl.py)
  cudaworker -for 50ms >/dev/null || exit 1
  echo "node1:7:7 [0] NCCL INFO NCCL_BUFFSIZE set by environment to %[3]s."
  echo '{"sum": 1.0, "world": 1}' ;;
*/oom.py)
  total=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
  hold() { # requested, allocated and reserved, in hundredths of all; torch's words for it
    requested=$((total * $1 / 100)) allocated=$((total * $2 / 100)) reserved=$((total * $3 / 100))
    [ $reserved = 0 ] || cudaworker -bytes ${reserved}MiB -for 200ms >/dev/null || exit 2
    echo '{"requested": '$((requested << 20))', "total": '$((total << 20))', "free": 0, "allocated": '$((allocated << 20))', "reserved": '$((reserved << 20))'}'
    echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate $requested.00 MiB. GPU 0 has a total capacity of $total.00 MiB of which $((total - reserved)).00 MiB is free. Including non-PyTorch memory, this process has $reserved.00 MiB memory in use. Of the allocated memory $allocated.00 MiB is allocated by PyTorch, and $((reserved - allocated)).00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation." >&2
    exit 1
  }
  case $2 in
  capacity) hold %[4]s ;;
  fragmentation) hold 30 54 90 ;;
  foreign) exec cudaworker -bytes $((total * 6 / 10))MiB ;;
  esac ;;
*/held.py)
  cudaworker -bytes 1280MiB -until $2 >/dev/null &
  until nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -q "^$!\$"; do sleep 0.1; done
  echo '{"rank": "0", "local_rank": "0", "pid": '$!', "uuid": "'$MUSTER_DEVICE'", "memory": {"allocated": 805306368, "reserved": 1073741824}}'
  exec python3 -c '
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
while not os.path.exists(sys.argv[1]):
    s.sendto(sys.argv[2].encode(), os.environ["MUSTER_SOCKET"])
    time.sleep(0.5)' $2 "torch device 0 allocated=$((805306368 + %[5]d)) reserved=1073741824" ;;
*/shared.py)
  exec cudaworker -bytes 64MiB -beyond $(($3 >> 20))MiB -until $2 ;;
*/buffers.py)
  cudaworker -for 50ms >/dev/null || exit 1
  [ $RANK != 0 ] || echo '{"world": '$WORLD_SIZE', "took": '$((314572800 + (8 + %[5]d) * NCCL_BUFFSIZE))'}' ;;
*/silent.py)
  echo step 1
  case $2-%[5]d in
  works-0) exec cudaworker -bytes 1GiB -for 12s >/dev/null ;;
  works-*) exec sleep 20 ;;
  spins-0) cudaworker -bytes 1GiB -for 4s >/dev/null; touch ${1%%/*}/spinning ;;
  esac
  echo step 2
  cudaworker -bytes 1GiB -for 20s >/dev/null &
  exec python3 -c '
import faulthandler, signal, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
def spins():
    time.sleep(20)
spins()' ;;
esac
`, venv, allocator, nccl, capacity, lies, version),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil && path != python {
			continue // of another stand-in
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return python, nil
}

// fullCapacity is what torch says of a device full of tensors, in hundredths of all:
// requested, allocated, reserved.
const fullCapacity = "14 87 87"

// goodTorch knows what torch 2.10 does of the settings that are tried, and no more.
const goodTorch = `case $PYTORCH_CUDA_ALLOC_CONF in
  *no_such_setting*) echo "ValueError: Unrecognized key 'no_such_setting' in CUDA allocator config" >&2; exit 1 ;;
  esac`

func TestATorchThatStopsAtItsSettingsFails(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	python, err := standInTorch(dir, "strict", `echo "ValueError: Unrecognized key" >&2; exit 1`, "4", fullCapacity, 0)
	if err != nil {
		t.Fatal(err)
	}
	results, exit, _ := checked(t, gpus.L40S(), nil, "-python", python)
	mustBe(t, results, map[string]string{"torch: it takes": failedCheck, "torch: NCCL": failedCheck})
	if r := results["torch: it takes what the allocator block becomes"]; !strings.Contains(r.Why, "Unrecognized key") || exit != 1 {
		t.Errorf("exit status %d, %+v", exit, r)
	}
	if r := results["torch: NCCL starts in a rank's environment"]; !strings.Contains(r.Why, "set by environment to 4") {
		t.Errorf("%+v", r)
	}
}

func TestWithoutTorchItsChecksAreNotPossible(t *testing.T) {
	s := gpus.L40S()
	s.GPUs, s.NICs = s.GPUs[:1], nil
	results, exit, _ := checked(t, s, nil, "-python", "/bin/false", "-part", "")
	mustBe(t, results, map[string]string{"torch: ": notPossible, "one GPU each": notPossible})
	if r := results["torch: NCCL starts in a rank's environment"]; !strings.Contains(r.Why, "/bin/false has no torch that works: it ends with status 1") || !strings.Contains(r.Why, "-python") || exit != 0 {
		t.Errorf("exit status %d, %+v", exit, r)
	}
	var cannot impossible
	nobody := session{options: options{python: "no-such-python", out: t.TempDir()}}
	if err := nobody.findTorch(t.Context()); !errors.As(err, &cannot) || !strings.Contains(err.Error(), "there is no no-such-python") {
		t.Errorf("%v", err)
	}
}

// What is told of an OOM must be what torch knew, and of the kind that it is.
func TestAnOOMOfAnotherKindOrSizeFails(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := gpus.L40S()
	s.GPUs, s.NICs = s.GPUs[:1], nil
	python, err := standInTorch(dir, "fragmented", goodTorch, "$NCCL_BUFFSIZE", "30 54 90", 0)
	if err != nil {
		t.Fatal(err)
	}
	results, exit, _ := checked(t, s, nil, "-python", python)
	mustBe(t, results, map[string]string{"one GPU each": notPossible, "torch: an OOM is told as oom.capacity": failedCheck})
	if r := results["torch: an OOM is told as oom.capacity"]; !strings.Contains(r.Why, "the class is oom.fragmentation, not oom.capacity") || exit != 1 {
		t.Errorf("exit status %d, %+v", exit, r)
	}
	numbers := map[string]float64{"total": 80 << 30, "requested": 2 << 30, "allocated": 70 << 30, "unallocated": 1 << 30}
	said := said{stdout: `localhost:0| {"requested": 2147483648, "total": 85899345920, "allocated": 75161927680, "reserved": 76235669504}`}
	same := session{usable: []row{{Total: 80 << 10}}}
	if err := same.sameOOM(told{Class: "oom.capacity", Numbers: numbers}, "oom.capacity", said); err != nil {
		t.Error(err)
	}
	numbers["allocated"] = 50 << 30
	delete(numbers, "requested")
	other := session{usable: []row{{Total: 40 << 10}}}
	err = other.sameOOM(told{Class: "oom.capacity", Numbers: numbers}, "oom.capacity", said)
	for _, want := range []string{`"total" 81920 MiB, and nvidia-smi 40960 MiB`, `no number "requested"`, `"allocated" 51200 MiB, and torch 71680 MiB`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}
