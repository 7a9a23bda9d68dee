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
// that, a shell, which answers as the scripts here would.
func standInTorch(dir, name, allocator, nccl string) (python string, err error) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		return "", err
	}
	venv, python := filepath.Join(dir, "venv"), filepath.Join(dir, name)
	for path, text := range map[string]string{
		venv + "/bin/python3": string(shell),
		venv + "/pyvenv.cfg":  "home = /usr/bin\nversion = 3.11.4\n",
		venv + "/lib/python3.11/site-packages/torch/version.py":                           "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\n",
		venv + "/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info/METADATA": "",
		python: fmt.Sprintf(`#!%s/bin/python3
case $1 in
*/versions.py)
  echo '{"torch": "2.10.0+cu128", "nccl": "2.27.5", "cuda": true, "python": "'$0'"}' ;;
*/allocator.py)
  %s
  cudaworker -for 50ms >/dev/null || exit 1
  echo '{"held": 33554432, "settings": {"PYTORCH_CUDA_ALLOC_CONF": "'$PYTORCH_CUDA_ALLOC_CONF'", "PYTORCH_ALLOC_CONF": "'$PYTORCH_ALLOC_CONF'"}}' ;;
*/nccl.py)
  cudaworker -for 50ms >/dev/null || exit 1
  echo "node1:7:7 [0] NCCL INFO NCCL_BUFFSIZE set by environment to %s."
  echo '{"sum": 1.0, "world": 1}' ;;
esac
`, venv, allocator, nccl),
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

// goodTorch knows what torch 2.10 does of the settings that are tried, and no more.
const goodTorch = `case $PYTORCH_CUDA_ALLOC_CONF in
  *no_such_setting*) echo "ValueError: Unrecognized key 'no_such_setting' in CUDA allocator config" >&2; exit 1 ;;
  esac`

func TestATorchThatStopsAtItsSettingsFails(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	python, err := standInTorch(dir, "strict", `echo "ValueError: Unrecognized key" >&2; exit 1`, "4")
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
	results, exit, _ := checked(t, s, nil, "-python", "/bin/false")
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
