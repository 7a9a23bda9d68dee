//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compile makes a program or a library of C, without a word of the compiler.
func compile(t *testing.T, source, into string, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), into)
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source}, more...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// works runs the C worker to its end. Folder holds the CUDA library; "": there is none.
func works(t *testing.T, folder string, env []string, args ...string) (worker, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, compile(t, "worker/worker.c", "cudaworker"), args...)
	cmd.Env = append([]string{"LD_LIBRARY_PATH=" + folder}, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var w worker
	if err == nil {
		if bad := json.Unmarshal(out, &w); bad != nil {
			t.Fatalf("%v: %s", bad, out)
		}
	}
	return w, stderr.String(), err
}

func TestTheWorkerSaysWhichGPUItHas(t *testing.T) {
	folder := filepath.Dir(compile(t, "testdata/libcuda.c", "libcuda.so.1", "-shared", "-fPIC"))
	stop := filepath.Join(t.TempDir(), "stop")
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"
	for local, want := range map[string]struct{ uuid, pci string }{"0": {first, "0000:0F:00.0"}, "1": {second, "0000:10:00.0"}} {
		w, said, err := works(t, folder, []string{"RANK=5", "LOCAL_RANK=" + local}, "-bytes", "96MiB", "-for", "30s", "-until", stop)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if w.UUID != want.uuid || w.PCI != want.pci || w.Rank != "5" || w.LocalRank != local || w.PID == 0 || w.CPUs == "" ||
			strings.Join(w.Visible, " ") != first+" "+second {
			t.Errorf("LOCAL_RANK %s: %+v", local, w)
		}
	}
}

func TestTheWorkerSaysWhatItCannotDo(t *testing.T) {
	folder := filepath.Dir(compile(t, "testdata/libcuda.c", "libcuda.so.1", "-shared", "-fPIC"))
	for want, test := range map[string]struct {
		folder string
		env    []string
		args   []string
	}{
		"CUDA's library, which comes with the NVIDIA driver, is not here": {folder: t.TempDir()},
		"cuCtxCreate: CUDA_ERROR_DEVICE_UNAVAILABLE (46)":                 {folder: folder, env: []string{"FAKE_CUDA_REFUSES=cuCtxCreate"}},
		"cuMemAlloc: CUDA_ERROR_DEVICE_UNAVAILABLE (46)":                  {folder: folder, env: []string{"FAKE_CUDA_REFUSES=cuMemAlloc"}},
		"cuDeviceGet of LOCAL_RANK: CUDA_ERROR_INVALID_DEVICE (101)":      {folder: folder, env: []string{"LOCAL_RANK=2"}},
		"-bytes 64: not a size such as 64MiB":                             {folder: folder, args: []string{"-bytes", "64"}},
		"-for 3: not a time such as 3s":                                   {folder: folder, args: []string{"-for", "3"}},
		"unknown argument -x":                                             {folder: folder, args: []string{"-x", "3"}},
		"-until lacks its value":                                          {folder: folder, args: []string{"-until"}},
	} {
		if _, said, err := works(t, test.folder, test.env, test.args...); err == nil || !strings.Contains(said, want) {
			t.Errorf("%v: %q, want %q", err, said, want)
		}
	}
}
