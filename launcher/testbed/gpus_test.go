//go:build linux

package testbed_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/launcher/testbed"
	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

// run is what a command says on a host, which must end well.
func run(t *testing.T, h *testbed.Host, argv ...string) string {
	t.Helper()
	out, err := try(t, h, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(t *testing.T, h *testbed.Host, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, _, err := h.Run(ctx, argv...)
	return string(out), err
}

func TestHostHasTheGPUsOfItsScenario(t *testing.T) {
	s := gpus.DGXH100()
	bed := testbed.New(t, testbed.Options{Hosts: 2, Each: func(i int, h *testbed.HostOptions) {
		if i == 0 {
			h.GPUs = s
		}
	}})
	with, without := bed.Hosts[0], bed.Hosts[1]

	if out := run(t, with, "nvidia-smi", "-L"); strings.Count(out, "GPU-") != 8 || !strings.Contains(out, s.GPUs[7].UUID) {
		t.Errorf("nvidia-smi -L: %s", out)
	}
	if out := run(t, with, "readlink", "-f", "/sys/bus/pci/devices/0000:1b:00.0"); strings.TrimSpace(out) !=
		"/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/0000:1b:00.0" {
		t.Errorf("GPU 0 in sysfs: %s", out)
	}
	for path, want := range map[string]string{
		"/sys/bus/pci/devices/0000:df:00.0/numa_node":       "1",
		"/sys/devices/system/node/node1/cpulist":            s.Nodes[1].CPUs,
		"/sys/class/infiniband/mlx5_3/ports/1/rate":         "400 Gb/sec (4X NDR)",
		"/sys/class/net/eth0/operstate":                     "up",
		"/sys/devices/system/cpu/online":                    strings.TrimSpace(machineFile(t, "/sys/devices/system/cpu/online")),
		"/proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3",
	} {
		if out := run(t, with, "cat", path); !strings.HasPrefix(out, want) {
			t.Errorf("%s: %q, want %q", path, out, want)
		}
	}
	run(t, with, "test", "-c", "/dev/nvidia7")
	run(t, with, "sh", "-c", "echo > /dev/null && head -c1 /dev/urandom > /dev/shm/x && test -e /dev/pts/ptmx")
	// The loader finds the library by its name alone: it says so otherwise.
	if out := run(t, with, "sh", "-c", "LD_PRELOAD=libnvidia-ml.so.1 true 2>&1"); out != "" {
		t.Error(out)
	}

	// Neither the other host nor the machine has any of it.
	for _, path := range []string{"/usr/bin/nvidia-smi", "/usr/bin/cudaworker", "/run/testbed-gpus", "/dev/nvidia0", "/proc/driver/nvidia", "/sys/bus/pci/devices/0000:1b:00.0"} {
		if _, err := try(t, without, "test", "-e", path); err == nil {
			t.Errorf("a host without GPUs has %s", path)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the machine has %s", path)
		}
	}
}

func machineFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLoginsAndTerminalsWorkOnAHostWithGPUs(t *testing.T) {
	bed := testbed.New(t, testbed.Options{GPUs: gpus.L40S()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-tt", "-F", bed.SSHConfig, "node1", "tty && nvidia-smi --query-gpu=name --format=csv,noheader -i 0").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/dev/pts/") || !strings.Contains(string(out), "NVIDIA L40S") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestGPUsChangeUnderARunningHost(t *testing.T) {
	bed := testbed.New(t, testbed.Options{GPUs: gpus.L40S()})
	host := bed.Hosts[0]
	query := func() string {
		out, _ := try(t, host, "nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
		return strings.TrimSpace(out)
	}
	if got := query(); got != "0, 0\n1, 0\n2, 0\n3, 0" {
		t.Errorf("idle: %s", got)
	}
	if err := host.SetGPUs(gpus.Busy()); err != nil {
		t.Fatal(err)
	}
	if got := query(); got != "0, 15360\n1, 15360\n2, 0\n3, 0" {
		t.Errorf("busy: %s", got)
	}
	if err := host.SetGPUs(gpus.Lost()); err != nil {
		t.Fatal(err)
	}
	if got := query(); !strings.Contains(got, "GPU1: 00000000:1B:00.0: GPU is lost") || strings.Contains(got, "\n1, ") {
		t.Errorf("lost: %s", got)
	}
	if err := host.SetGPUs(gpus.Mixed()); err != nil { // another machine altogether
		t.Fatal(err)
	}
	if out := run(t, host, "ls", "/sys/bus/pci/devices"); strings.Contains(out, "0000:1b:00.0") || !strings.Contains(out, "0000:02:00.0") {
		t.Errorf("devices of another machine: %s", out)
	}
	if err := host.SetGPUs(nil); err != nil {
		t.Fatal(err)
	}
	if out, err := try(t, host, "nvidia-smi"); err == nil {
		t.Errorf("nvidia-smi without anything of NVIDIA's: %s", out)
	}
	if err := host.SetGPUs(gpus.L40S()); err != nil {
		t.Fatal(err)
	}
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := host.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(); got != "0, 0\n1, 0\n2, 0\n3, 0" {
		t.Errorf("after the host was off: %s", got)
	}
}

func TestWorkersShowUpAsLongAsTheyLive(t *testing.T) {
	bed := testbed.New(t, testbed.Options{GPUs: gpus.L40S()})
	host := bed.Hosts[0]
	stop := filepath.Join(bed.Shared, "stop")
	done := make(chan string, 1)
	go func() {
		out, _, err := host.Run(t.Context(), "env", "LOCAL_RANK=1", "RANK=5", "CUDA_VISIBLE_DEVICES=3,2", "cudaworker", "-bytes", "3GiB", "-until", stop)
		if err != nil {
			t.Error(err)
		}
		done <- string(out)
	}()
	await(t, "the worker's memory", func() bool {
		return run(t, host, "nvidia-smi", "-i", "2", "--query-gpu=memory.used", "--format=csv,noheader") == "3072 MiB\n"
	})
	apps := run(t, host, "nvidia-smi", "--query-compute-apps=gpu_uuid,process_name,used_memory", "--format=csv,noheader")
	if want := host.GPUs().GPUs[2].UUID + ", cudaworker, 3072 MiB\n"; apps != want {
		t.Errorf("processes: %q, want %q", apps, want)
	}
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var line struct {
		Rank    string
		Index   int
		Visible []string
		CPUs    string
	}
	if err := json.Unmarshal([]byte(<-done), &line); err != nil {
		t.Fatal(err)
	}
	if line.Rank != "5" || line.Index != 2 || len(line.Visible) != 2 || line.CPUs == "" {
		t.Errorf("the worker says %+v", line)
	}
	if used := run(t, host, "nvidia-smi", "-i", "2", "--query-gpu=memory.used", "--format=csv,noheader"); used != "0 MiB\n" {
		t.Errorf("after its end: %s", used)
	}
}

func TestWorkersShareAGPUOfAHostThroughMPS(t *testing.T) {
	s := gpus.L40S()
	bed := testbed.New(t, testbed.Options{GPUs: s})
	host, uuid := bed.Hosts[0], s.GPUs[3].UUID
	run(t, host, "mkdir", "-m", "0700", "/tmp/pipe")
	client := []string{"env", "CUDA_MPS_PIPE_DIRECTORY=/tmp/pipe"}
	control := func(command string) string {
		return strings.TrimSpace(run(t, host, append(client, "sh", "-c", "echo '"+command+"' | nvidia-cuda-mps-control")...))
	}
	run(t, host, "nvidia-smi", "-i", uuid, "-c", "EXCLUSIVE_PROCESS")
	run(t, host, append(client, "CUDA_VISIBLE_DEVICES="+uuid, "nvidia-cuda-mps-control", "-d")...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go func() { // ended with the host
			_, _, _ = host.Run(ctx, append(client, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "cudaworker", "-bytes", "3GiB", "-for", "1m")...)
		}()
	}
	await(t, "both clients' memory", func() bool {
		return run(t, host, "nvidia-smi", "-i", "3", "--query-gpu=memory.used", "--format=csv,noheader") == "6174 MiB\n" // the server's, too
	})
	server := control("get_server_list")
	if clients := strings.Fields(control("get_client_list " + server)); len(clients) != 2 {
		t.Errorf("clients %v of server %q", clients, server)
	}
	said := run(t, host, "nvidia-smi", "-q", "-x", "-i", "3")
	if strings.Count(said, "<type>M+C</type>") != 2 || strings.Count(said, "<type>C</type>") != 1 || !strings.Contains(said, "<pid>"+server+"</pid>") {
		t.Errorf("processes:\n%s", said)
	}
	if out, err := try(t, host, "env", "LOCAL_RANK=3", "cudaworker"); err == nil || !strings.Contains(out+err.Error(), "busy or unavailable") {
		t.Errorf("a process without MPS: %v, %s", err, out)
	}
	if said := run(t, host, "cat", "/var/log/nvidia-mps/control.log"); !strings.Contains(said, "NEW SERVER "+server+": Ready") {
		t.Errorf("control.log:\n%s", said)
	}
	if text, _ := os.ReadFile("/var/log/nvidia-mps/control.log"); strings.Contains(string(text), "/tmp/pipe/control") {
		t.Error("the machine has the host's log")
	}
	without := s.Clone()
	without.NoMPS = true
	if err := host.SetGPUs(without); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, host, "test", "-e", "/usr/bin/nvidia-cuda-mps-server"); err == nil {
		t.Error("the server is installed")
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
